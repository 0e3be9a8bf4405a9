"""Forecast: how long a sampling run will take and how much memory it needs, before it starts."""

import time
from dataclasses import dataclass

import torch

from assay.omniinput.sampling.kernels.suffix import LanguageProblem
from assay.omniinput.sampling.question import Question
from assay.omniinput.sampling.samplers.importance import ROUND_BATCH

PROBED = 16  # evaluations that are timed, after two that are not


@dataclass(frozen=True)
class Forecast:
    """Expected evaluations, seconds and bytes beyond the model's own; rough, from a few evaluations."""

    evaluations: int
    seconds: float
    bytes: float

    def __str__(self) -> str:
        rate = self.evaluations / max(self.seconds, 1e-9)
        return (
            f"about {self.evaluations:,} evaluations in {_duration(self.seconds)} at {rate:,.0f} a second, "
            f"with {max(self.bytes / 1e6, 1):,.0f} MB beside the model"
        )


def forecast(question: Question) -> Forecast:
    """Time a few evaluations on random inputs, and say what the whole budget would take at that speed."""
    run = question.run()
    generator = torch.Generator().manual_seed(question.seed)
    sites = run.problem.draw(2 + PROBED, generator)
    run.problem.again(sites[:2])
    started = time.monotonic()
    run.problem.again(sites[2:])
    each = (time.monotonic() - started) / PROBED
    limits = (run.budget.evaluations, None if run.budget.seconds is None else run.budget.seconds / each)
    evaluations = int(min(limit for limit in limits if limit is not None))
    return Forecast(evaluations, evaluations * each, _bytes(run.problem.space.sites, run.problem))


def _bytes(sites: int, problem: object) -> float:
    """Logits of one batch, twice, for a language model; otherwise next to nothing."""
    if not isinstance(problem, LanguageProblem):
        return 8.0 * 4096 * sites
    rows = min(ROUND_BATCH, problem.lm.most_rows)
    return 2 * 4.0 * rows * problem.lm.values


def _duration(seconds: float) -> str:
    for size, name in ((86_400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.0f} seconds"
