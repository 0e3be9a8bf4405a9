"""The ladder of inverse temperatures: how far it must reach, and where its rungs go."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

MOST_DOUBLINGS = 6  # of the first guess 1/std, where no bins say how far to go


@dataclass(frozen=True)
class Reach:
    """The bins that the ends of the ladder should reach with their mean output.

    `low` and `high` are the lowest and the highest bin as (lower edge, upper edge); None means as far as
    possible.
    """

    low: tuple[float, float] | None
    high: tuple[float, float] | None


@dataclass(frozen=True)
class Visit:
    """Result of a round: ladder (ascending), mean output per rung, swap rejection between neighbours.

    `drifts` is by how much the mean still changed from the third to the last quarter of the round.
    """

    betas: Array
    means: Array
    drifts: Array
    rejections: Array

    def mirrored(self) -> "Visit":
        """The same ladder from its other end: outputs and temperatures with opposite sign."""
        return Visit(-self.betas[::-1], -self.means[::-1], -self.drifts[::-1], self.rejections[::-1])


def first_ladder(mean: float, deviation: float, reach: Reach, rungs: int) -> Array:
    """From zero to where the mean output would lie in the outermost bin, on each side with bins.

    If outputs were normal, the mean at beta would be mean - beta deviation^2. The guess ends at 16 /
    deviation, 16 standard deviations from the bulk, and is corrected round by round.
    """
    cold = _first_end(mean, deviation, reach.low)
    hot = -_first_end(-mean, deviation, None if reach.high is None else (-reach.high[1], -reach.high[0]))
    if cold == hot == 0.0:
        cold = 0.1 / deviation
    return _with_zero(np.linspace(hot, cold, max(rungs, 3 if hot and cold else 2)))


def _first_end(mean: float, deviation: float, goal: tuple[float, float] | None) -> float:
    if goal is None:
        return 2 / deviation
    if goal[1] >= mean:
        return 0.0
    return min((mean - (goal[0] + goal[1]) / 2) / deviation, 16.0) / deviation


def next_ladder(visit: Visit, reach: Reach, deviation: float, replicas: int | None, most: int) -> Array:
    """Ends moved towards the bins, rungs at equal cumulative rejection; about 2 Lambda + 1 of them.

    Lambda is the sum of the neighbour rejection rates (Syed et al. 2022, who call it the global barrier).
    """
    cold = _moved_end(visit, reach.low, deviation)
    high = None if reach.high is None else (-reach.high[1], -reach.high[0])
    hot = -_moved_end(visit.mirrored(), high, deviation)
    barrier = np.concatenate([[0.0], np.cumsum(np.maximum(visit.rejections, 1e-3))])
    grid, barrier = _extended(visit.betas, barrier, hot, cold)
    count = replicas or int(np.clip(math.ceil(2 * (barrier[-1] - barrier[0])) + 1, 3, most))
    levels = np.linspace(barrier[0], barrier[-1], count)
    return _with_zero(np.interp(levels, barrier, grid))


def grew(old: Array, new: Array) -> bool:
    """Whether either end went outwards by more than a tenth."""
    return bool(new[0] < 1.1 * min(old[0], 0.0) or new[-1] > 1.1 * max(old[-1], 0.0))


def _moved_end(visit: Visit, goal: tuple[float, float] | None, deviation: float) -> float:
    """The new coldest beta, so that its mean output comes to lie in the lowest bin.

    Zero stays zero: there are no bins on that side. The end grows by at most half per round, since a round
    tells nothing beyond its own ladder, and not before the coldest rung has settled: cooling too fast
    freezes.
    """
    betas, means = visit.betas, visit.means
    end, span = float(betas[-1]), float(means[0] - means[-1])
    if end <= 0.0:
        return end
    # If colder rungs no longer lower the output, it has reached its least value.
    grows = bool(means[-2] - means[-1] > 1e-3 * span and visit.drifts[-1] > -0.05 * span)
    if goal is None:
        return min(1.5 * end, 2**MOST_DOUBLINGS / deviation) if grows else end
    aim = (goal[0] + goal[1]) / 2
    if means[-1] > goal[1]:
        fall = (means[-2] - means[-1]) / (betas[-1] - betas[-2])
        wanted = end + (means[-1] - aim) / fall if fall > 0 else 1.5 * end
        return float(np.clip(wanted, 1.1 * end, 1.5 * end)) if grows else end
    if means[-1] < goal[0]:
        falling = np.minimum.accumulate(means)
        # np.interp needs ascending abscissae: start from the cold end, where outputs are lowest.
        return max(float(np.interp(aim, falling[::-1], betas[::-1])), float(betas[betas > 0][0]))
    return end


def _extended(betas: Array, barrier: Array, hot: float, cold: float) -> tuple[Array, Array]:
    """The barrier as a function of beta from hot to cold; beyond the ladder the last slope continues."""
    slopes = np.diff(barrier) / np.diff(betas)
    inner = (betas > hot) & (betas < cold)
    at_hot = np.interp(hot, betas, barrier) + slopes[0] * min(hot - betas[0], 0.0)
    at_cold = np.interp(cold, betas, barrier) + slopes[-1] * max(cold - betas[-1], 0.0)
    grid = np.concatenate([[hot], betas[inner], [cold]])
    return grid, np.concatenate([[at_hot], barrier[inner], [at_cold]])


def _with_zero(betas: Array) -> Array:
    """The rung nearest to zero put at zero, where the number of inputs is known."""
    betas = betas.copy()
    if betas[0] <= 0 <= betas[-1]:
        betas[np.argmin(np.abs(betas))] = 0.0
    return betas
