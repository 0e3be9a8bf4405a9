"""How far an estimate on kept points could have come out otherwise.

Two things are random: which points the test set happened to hold, and which inputs operation happened to see.
Reshaping again for every replicate would take hours; one regression step stands in for it. The indicator's
influence per point is split into what its cells explain and the rest. The rest varies with the kept points,
the explained part with the operational counts. Only marginal counts of operation are known; the kept points,
which have the same marginals, stand in for how neurons go together.

A third thing is not random: to keep many points, reshaping uses all the slack that epsilon leaves, and always
leans towards the old test set. The same regression says by how much, and intervals cover both the estimate as
it is and the estimate with that lean taken out.
"""

from functools import partial
from typing import Any

import numpy as np
from scipy.stats import beta
from torch import Tensor

from assay.engine import mapped
from assay.reshaping.array_types import Floats
from assay.reshaping.solver import Patterns

BUDGET = 2e8  # draws in all; large sets need fewer replicates, their intervals being narrow
FEWEST = 100
TOGETHER = 50  # replicates per job, whatever the engine: each job has random numbers of its own


def bootstrap_ratio(
    patterns: Patterns,
    numerator: Floats,
    denominator: Floats,
    portions: Floats,
    operational: int,
    replicates: int,
    rng: np.random.Generator,
    engine: str = "here",
) -> Floats:
    """Replicates of a ratio of sums, within [0, 1]; every second one has the lean taken out.

    Where all points agree there is nothing to resample; draws from the Clopper-Pearson limit (a beta
    distribution) stand in, so that no error among m points is not taken for none at all.
    """
    value = float(numerator.sum() / denominator.sum())
    if np.array_equal(numerator, denominator) or not numerator.any():
        points = denominator.sum()
        tail = beta.rvs(points, 1, size=replicates, random_state=rng)
        return tail if numerator.any() else 1 - tail
    influence = (numerator - value * denominator) / denominator.mean()
    fit = np.linalg.solve(_regularised(patterns), patterns.totals(influence))
    explained = patterns.prices(np.asarray(fit, np.float64))
    rest = influence - explained
    lean = float(fit @ portions) - float(explained.mean())
    replicates = int(min(replicates, max(FEWEST, BUDGET // (len(rest) + operational))))
    draw = partial(_ratio_draws, rest, explained, operational)
    moved = np.concatenate(list(mapped(draw, _shares(replicates, rng), engine, description="resampling")))
    draws = value + moved - float(explained.mean()) + lean * (np.arange(replicates) % 2)
    return np.clip(draws, 0.0, 1.0)


def bootstrap_function(
    patterns: Patterns,
    labels: Tensor,
    predictions: Tensor,
    indicator: Any,
    portions: Floats,
    operational: int,
    replicates: int,
    rng: np.random.Generator,
    engine: str = "here",
) -> Floats:
    """Replicates of any function: points are drawn anew, tilted by one regression step to redrawn counts.

    Every second one has the lean taken out.
    """
    points = patterns.points
    inverse = np.asarray(np.linalg.inv(_regularised(patterns)), np.float64)
    counts = patterns.totals()
    lean = points * portions - counts
    draw = partial(
        _function_draws, patterns, labels, predictions, indicator, inverse, counts, lean, operational
    )
    return np.concatenate(list(mapped(draw, _shares(replicates, rng), engine, description="resampling")))


Block = tuple[int, int, np.random.Generator]
"""First replicate, number of replicates, and their own random numbers."""


def _shares(replicates: int, rng: np.random.Generator) -> list[Block]:
    """Replicates in parts that any engine may run in any order."""
    starts = range(0, replicates, TOGETHER)
    return [
        (start, min(TOGETHER, replicates - start), own)
        for start, own in zip(starts, rng.spawn(len(starts)), strict=True)
    ]


def _ratio_draws(rest: Floats, explained: Floats, operational: int, share: Block) -> Floats:
    _, count, rng = share
    draws = np.empty(count)
    for index in range(count):
        from_test = rest[rng.integers(0, len(rest), len(rest))].mean()
        draws[index] = from_test + explained[rng.integers(0, len(rest), operational)].mean()
    return draws


def _function_draws(
    patterns: Patterns,
    labels: Tensor,
    predictions: Tensor,
    indicator: Any,
    inverse: Floats,
    counts: Floats,
    lean: Floats,
    operational: int,
    share: Block,
) -> Floats:
    first, count, rng = share
    points = patterns.points
    draws = np.empty(count)
    for index in range(count):
        seen = np.bincount(rng.integers(0, points, operational), minlength=points) / operational
        tilt = inverse @ (points * patterns.totals(seen) - counts + lean * ((first + index) % 2))
        weights = np.maximum(1.0 + patterns.prices(tilt), 0.0)
        rows = rng.choice(points, points, p=weights / weights.sum())
        draws[index] = float(indicator(labels[rows], predictions[rows]))
    return draws


def _regularised(patterns: Patterns) -> Floats:
    """Of the least-squares fit by cells, each shrunk by one point's worth."""
    return patterns.gram(np.ones(patterns.points)) + np.eye(patterns.cells)
