"""ImportanceThenTempering: for a causal language model, tempering where importance sampling is weak."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from assay.omniinput.sampling import convergence
from assay.omniinput.sampling.convergence import LEAST_EFFECTIVE
from assay.omniinput.sampling.density_estimate import Anchor
from assay.omniinput.sampling.distribution import OutputDistribution, Samples
from assay.omniinput.sampling.kernels.chain import Kernel
from assay.omniinput.sampling.kernels.suffix import LanguageProblem
from assay.omniinput.sampling.plan import Budget, Plan
from assay.omniinput.sampling.problem import Evaluated
from assay.omniinput.sampling.samplers.importance import Importance
from assay.omniinput.sampling.samplers.tempering import Tempering

Array = NDArray[np.float64]

FIRST_SHARE = 0.4  # of the budget, before the effective sample size of every bin is looked at

EVALUATIONS_PER_EFFECTIVE = 5_000  # of tempering in a rare bin: 20,000 on the Markov model and stories260K


@dataclass
class ImportanceThenTempering:
    """If every bin has enough effective samples after two fifths of the budget, importance sampling
    continues. A budget too small for tempering is its own from the start.

    Otherwise, if tempering with suffix proposals is expected to do better, it gets the rest: its samples are
    correlated but reach bins that ancestral samples hardly ever reach.
    """

    problem: LanguageProblem
    kernels: list[Kernel]
    plan: Plan
    budget: Budget
    generator: torch.Generator
    importance: Importance = field(init=False)
    tempering: Tempering | None = None

    def __post_init__(self) -> None:
        known = self.budget.evaluations
        alone = known is not None and known * (1 - FIRST_SHARE) < LEAST_EFFECTIVE * EVALUATIONS_PER_EFFECTIVE
        share = 1.0 if alone else FIRST_SHARE
        self.importance = Importance(self.problem, self.plan, self.budget, self.generator, share)

    def begin(self) -> None:
        self.importance.begin()

    @property
    def finished(self) -> bool:
        if self.tempering is not None:
            return self.tempering.finished
        return self.importance.finished and self.importance.share == 1.0

    def advance(self) -> None:
        if self.tempering is not None:
            self.tempering.advance()
        elif not self.importance.finished:
            self.importance.advance()
        elif len(self._weak_bins()):
            self.tempering = self._tempering()
            self.tempering.begin()
        else:
            self.importance.share = 1.0

    def _weak_bins(self) -> NDArray[np.int64]:
        """Bins expected to end with too few effective samples, and fewer than tempering would give.

        Empty if the budget left is too small for tempering.
        """
        left = self.problem.evaluations * (1 - FIRST_SHARE) / FIRST_SHARE
        by_tempering = left / EVALUATIONS_PER_EFFECTIVE
        if self.importance.piloting or by_tempering < LEAST_EFFECTIVE:
            return np.empty(0, dtype=np.int64)
        projected = self.importance.effective() / FIRST_SHARE
        return np.flatnonzero(projected < min(self.importance.least_effective, by_tempering))

    def _tempering(self) -> Tempering:
        """Tempering on the rest of the budget.

        If only outputs below those of the model's own samples are weak, the ladder starts at beta = 1, where
        suffix proposals are always accepted and the sum of all likelihoods is known.
        """
        run = Tempering(self.problem, self.kernels, self.plan, self.budget, self.generator)
        weak = self._weak_bins()
        edges, known = self.importance.edges, self.problem.lm.log_total_likelihood
        low = edges is not None and len(weak) and edges[weak[-1] + 1] < self.importance.mean_at_one()
        if low and known is not None:
            run.anchor = Anchor(1.0, known - self.problem.space.log_size)
        run.spent_before = self.budget.fraction(self.problem.evaluations)
        return run

    @property
    def seen(self) -> tuple[float, float] | None:
        return None if self.tempering is None else self.tempering.seen

    def distribution(self) -> OutputDistribution | None:
        first = self.importance.distribution()
        second = None if self.tempering is None else self.tempering.distribution()
        return combined(first, second) if first and second else first or second

    def snapshot(self) -> dict[str, Any]:
        tempering = None if self.tempering is None else self.tempering.snapshot()
        return {"importance": self.importance.snapshot(), "tempering": tempering}

    def evaluated(self) -> list[Evaluated]:
        return self.importance.evaluated() + ([] if self.tempering is None else self.tempering.evaluated())

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.importance.restore(snapshot["importance"])
        if snapshot["tempering"] is not None:
            self.tempering = Tempering(self.problem, self.kernels, self.plan, self.budget, self.generator)
            self.tempering.restore(snapshot["tempering"])


def combined(importance: OutputDistribution, tempering: OutputDistribution) -> OutputDistribution:
    """Two independent estimates of the same density, each bin weighted by its precision.

    Bins that either sampler passed need no more from the other; both must agree where both are known.
    """
    one, two = _precision(importance), _precision(tempering)
    # With few effective samples importance sampling underestimates its own error, so it counts for less.
    trust = importance.diagnostics["effective_sample_size"] / convergence.LEAST_IMPORTANCE_EFFECTIVE
    weak = trust < 1.0
    one = one * np.minimum(trust, 1.0) ** 2
    total = one + two
    share = np.divide(one, total, out=np.zeros_like(total), where=total > 0)
    log_density = _mixed(share, importance.log_density, tempering.log_density)
    error = np.where(
        total > 0, 1 / np.sqrt(np.maximum(total, 1e-300)), np.where(np.isnan(log_density), np.nan, np.inf)
    )
    count = min(len(importance.resamples), len(tempering.resamples))
    resamples = _mixed(share, importance.resamples[:count], tempering.resamples[:count])
    both = np.stack([importance.log_density, tempering.log_density])
    between = np.sqrt(importance.error**2 + tempering.error**2) / 2
    between[weak] = np.nan
    apart, reasons = convergence.agreement(both, between)
    effective = np.where(share >= 0.5, importance.diagnostics["effective_sample_size"], 1 / error**2)
    reasons = [reason for reason in reasons if reason.failure is convergence.Failure.DISAGREEMENT]
    reasons += convergence.effective_reasons(effective, log_density, convergence.LEAST_EFFECTIVE)
    reasons += [reason for reason in tempering.reasons if reason.failure in convergence.LADDER_FAILURES]
    diagnostics = {f"importance_{name}": value for name, value in importance.diagnostics.items()}
    diagnostics |= dict(tempering.diagnostics)
    diagnostics |= {
        "sampler": "importance, then tempering",
        "effective_sample_size": effective,
        "samplers_apart": apart,
        "importance_share": share,
    }
    kept = _joined(importance.kept, tempering.kept, share >= 0.5)
    reasons += convergence.gap_reasons(log_density)
    return OutputDistribution(
        importance.edges, log_density, error, importance.space, kept, resamples, diagnostics, tuple(reasons)
    )


def _precision(dist: OutputDistribution) -> Array:
    usable = np.isfinite(dist.error) & ~np.isnan(dist.log_density)
    return np.where(usable, 1 / np.maximum(dist.error, 1e-6) ** 2, 0.0)


def _mixed(share: Array, one: Array, two: Array) -> Array:
    """The weighted mean with `share` of the first; the one that is known if only one is."""
    first = np.where(np.isfinite(one), share, 0.0)
    first = np.where(np.isfinite(two), first, 1.0)
    with np.errstate(invalid="ignore"):
        return np.where(first == 1, one, np.where(first == 0, two, first * one + (1 - first) * two))


def _joined(one: Samples, two: Samples, first: NDArray[np.bool_]) -> Samples:
    """The inputs of the first in the bins marked, those of the second elsewhere."""
    mine, theirs = np.flatnonzero(first[one.bins]), np.flatnonzero(~first[two.bins])
    return Samples.joined([one.rows(mine), two.rows(theirs)])
