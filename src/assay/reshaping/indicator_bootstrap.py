"""The uncertainty of an estimate on kept points.

Two things are random: which points the test set happened to contain, and which inputs operation happened to
see. Reshaping again for every resample would take hours; one regression step stands in for it. The
indicator's influence per point is split into the part that its cells explain and the rest. The rest varies
with the kept points, the explained part with the operational counts. Only marginal counts of operation are
known; the kept points, which have the same marginals, stand in for the joint counts.

A third thing is not random: to keep many points, reshaping uses all the slack that epsilon leaves, and always
leans towards the old test set. The same regression says by how much, and intervals cover both the estimate as
it is and the estimate with that lean removed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import beta
from torch import Tensor

from assay.engine import mapped
from assay.reshaping.array_types import Floats
from assay.reshaping.solver import Patterns

BUDGET = 2e8  # rows drawn in all; large sets need fewer resamples, because their intervals are narrow
FEWEST = 100
PER_JOB = 50  # resamples per job, whatever the engine: each job has random numbers of its own


@dataclass(frozen=True, eq=False)
class KeptPoints:
    """The cells of the kept points, and the operational portions and number of inputs they stand for."""

    patterns: Patterns
    portions: Floats
    inputs: int


class ResampleJob(NamedTuple):
    """Some of the resamples, with their own random numbers: any engine may run jobs in any order."""

    first: int
    resamples: int
    rng: np.random.Generator


@dataclass(frozen=True, eq=False)
class Resampling:
    """The number of resamples, their random numbers, and the engine."""

    resamples: int
    rng: np.random.Generator
    engine: str = "here"

    def draws(self, resamples: int, draw: Callable[[ResampleJob], Floats]) -> Floats:
        """So many results of `draw`, which answers one job at a time."""
        starts = range(0, resamples, PER_JOB)
        jobs = [
            ResampleJob(start, min(PER_JOB, resamples - start), own)
            for start, own in zip(starts, self.rng.spawn(len(starts)), strict=True)
        ]
        return np.concatenate(list(mapped(draw, jobs, self.engine, description="resampling")))


def bootstrap_ratio(
    kept: KeptPoints, numerator: Floats, denominator: Floats, resampling: Resampling
) -> Floats:
    """Resamples of a ratio of sums, within [0, 1]; every second one has the lean removed.

    Where all points agree there is nothing to resample; draws from the Clopper-Pearson limit (a beta
    distribution) stand in, so that no error among m points is not taken for none at all.
    """
    value = float(numerator.sum() / denominator.sum())
    if np.array_equal(numerator, denominator) or not numerator.any():
        points = denominator.sum()
        tail = beta.rvs(points, 1, size=resampling.resamples, random_state=resampling.rng)
        return tail if numerator.any() else 1 - tail
    influence = (numerator - value * denominator) / denominator.mean()
    fit = np.linalg.solve(_regularised(kept.patterns), kept.patterns.totals(influence))
    explained = kept.patterns.prices(np.asarray(fit, np.float64))
    rest = influence - explained
    lean = float(fit @ kept.portions) - float(explained.mean())
    resamples = int(min(resampling.resamples, max(FEWEST, BUDGET // (len(rest) + kept.inputs))))
    moved = resampling.draws(resamples, partial(_ratio_draws, rest, explained, kept.inputs))
    draws = value + moved - float(explained.mean()) + lean * (np.arange(resamples) % 2)
    return np.clip(draws, 0.0, 1.0)


def bootstrap_function(
    kept: KeptPoints, labels: Tensor, predictions: Tensor, indicator: Any, resampling: Resampling
) -> Floats:
    """Resamples of any function: points are drawn again, tilted by one regression step to redrawn counts.

    Every second one has the lean removed.
    """
    inverse = np.asarray(np.linalg.inv(_regularised(kept.patterns)), np.float64)
    draw = partial(_function_draws, kept, inverse, labels, predictions, indicator)
    return resampling.draws(resampling.resamples, draw)


def _ratio_draws(rest: Floats, explained: Floats, inputs: int, job: ResampleJob) -> Floats:
    draws = np.empty(job.resamples)
    for index in range(job.resamples):
        from_test = rest[job.rng.integers(0, len(rest), len(rest))].mean()
        draws[index] = from_test + explained[job.rng.integers(0, len(rest), inputs)].mean()
    return draws


def _function_draws(
    kept: KeptPoints,
    inverse: Floats,
    labels: Tensor,
    predictions: Tensor,
    indicator: Any,
    job: ResampleJob,
) -> Floats:
    patterns, points = kept.patterns, kept.patterns.points
    counts = patterns.totals()
    lean = points * kept.portions - counts
    draws = np.empty(job.resamples)
    for index in range(job.resamples):
        seen = np.bincount(job.rng.integers(0, points, kept.inputs), minlength=points) / kept.inputs
        tilt = inverse @ (points * patterns.totals(seen) - counts + lean * ((job.first + index) % 2))
        weights = np.maximum(1.0 + patterns.prices(tilt), 0.0)
        rows = job.rng.choice(points, points, p=weights / weights.sum())
        draws[index] = float(indicator(labels[rows], predictions[rows]))
    return draws


def _regularised(patterns: Patterns) -> Floats:
    """The Gram matrix of the least-squares fit by cells, each cell shrunk by one point's worth."""
    return patterns.gram(np.ones(patterns.points)) + np.eye(patterns.cells)
