"""Upper limits on the number kept that hold whatever the solver did.

Weak duality: any multipliers give a limit, at the price of one pass over the points. Bad multipliers give a
weak limit, never a wrong one.
"""

import numpy as np
from numpy.typing import NDArray

from assay.reshaping.array_types import Floats, Integers
from assay.reshaping.solver.program import PortionTarget, SubsetProblem

BLOCK = 1024
ROUNDING = 1e-6  # points; sums of a million doubles of order one are wrong by less than this


def bound(problem: SubsetProblem, multipliers: Floats) -> float:
    """No subset within epsilon keeps more than this; O(points x neurons).

    With u and l the multipliers of "at most" and "at least" in each cell and v = u - l, every kept set obeys

        s <= s S - sum_r v_r cell_r,    S = 1 + sum_r (p_r v_r + epsilon |v_r|),    s = kept points

    and the right side is a sum over points, largest when each point is kept exactly if its term is positive.
    """
    target = problem.target
    whole = 1.0 + float(target.portions @ multipliers) + target.epsilon * float(np.abs(multipliers).sum())
    gains = np.maximum(0.0, whole - problem.patterns.prices(multipliers))
    fixed = problem.fixed_points * whole - float(problem.fixed @ multipliers)
    return fixed + float(problem.multiplicity @ gains)


def best_bound(problem: SubsetProblem, multipliers: Floats) -> int:
    """The limit from these multipliers, from their large entries alone, and from each neuron by itself."""
    largest = float(np.abs(multipliers).max(initial=0.0))
    cleaned = np.where(np.abs(multipliers) > 1e-7 * largest, multipliers, 0.0)
    found = min(bound(problem, multipliers), bound(problem, cleaned))
    return min(int(np.floor(found + ROUNDING)), single_neuron_bound(problem))


def refuted(problem: SubsetProblem, numbers: Integers, cells: Floats, total: float) -> NDArray[np.bool_]:
    """Which numbers kept are impossible, shown by multipliers of the cells and of the total.

    For a number s, counts must lie within whole-number limits, which is stricter than Eq. 8; a combination
    of those limits that no choice of points can reach rules s out. One pass over the points serves all s.
    """
    reach = float(problem.multiplicity @ np.maximum(0.0, problem.patterns.prices(cells) + total))
    reach += float(problem.fixed @ cells) + problem.fixed_points * total
    low, high = problem.target.limits(numbers)
    demands = low @ np.maximum(cells, 0) + high @ np.minimum(cells, 0) + total * numbers
    return np.asarray(demands > reach + ROUNDING * (1 + abs(reach)))


def single_neuron_bound(problem: SubsetProblem) -> int:
    """The most that can be kept when only one neuron counts, for the neuron that allows least (Remark 1)."""
    return min(single_neuron_optimum(problem, neuron) for neuron in range(len(problem.patterns.sizes)))


def single_neuron_optimum(problem: SubsetProblem, neuron: int) -> int:
    """Remark 1: with one neuron, the largest s is found by counting; 0 where there is none.

    A number s works exactly if every cell can hold a permitted count and the permitted counts can add up
    to s. Numbers are tried from the top in blocks.
    """
    span = list(problem.patterns.spans())[neuron]
    available, fixed = problem.available[span], problem.fixed[span]
    target = problem.target.part(span)
    top, least = _single_neuron_top(target, available), max(problem.fixed_points, 1)
    for start in range(top, least - 1, -BLOCK):
        numbers = np.arange(start, max(start - BLOCK, least - 1), -1)
        low, high = target.limits(numbers)
        low, high = np.maximum(low, fixed), np.minimum(high, available)
        fits = (low <= high).all(axis=1) & (low.sum(axis=1) <= numbers) & (numbers <= high.sum(axis=1))
        if fits.any():
            return int(numbers[fits.argmax()])
    return 0


def _single_neuron_top(target: PortionTarget, available: Integers) -> int:
    """A limit on s without whole-number effects, so that the search below it is short."""
    need, most = target.portions - target.epsilon, target.portions + target.epsilon
    scarce = need > 0
    top = min([float(available.sum()), *(available[scarce] / need[scarce]).tolist()])
    if np.minimum(available, most * top).sum() >= top:
        return int(top + ROUNDING)
    low, high = 0.0, top  # sum_j min(available_j, most_j s) >= s holds up to some s
    for _ in range(60):
        middle = (low + high) / 2
        enough = np.minimum(available, most * middle).sum() >= middle
        low, high = (middle, high) if enough else (low, middle)
    return int(high + ROUNDING)


def least_epsilon(problem: SubsetProblem, multipliers: Floats) -> float:
    """No weighting of the candidates is similar for a smaller epsilon than this.

    The largest difference of portions is at least any average of them, and the average that the multipliers
    weigh is smallest when all weight is on the point with the lowest price.
    """
    size = float(np.abs(multipliers).sum())
    if not size:
        return 0.0
    reached = float(problem.patterns.prices(multipliers).min()) - float(problem.target.portions @ multipliers)
    return max(reached / size, 0.0)


def least_ratio(problem: SubsetProblem, numerator: Floats, denominator: Floats, multipliers: Floats) -> float:
    """No weighting within epsilon has a smaller ratio of weighted sums than this, up to rounding.

    For a ratio q and multipliers v of the cells, sum_k w_k (numerator_k - q denominator_k) is at least
    sum_k w_k (numerator_k - q denominator_k + price_k - V) with V = sum_r (p_r v_r + epsilon |v_r|); if every
    term is non-negative, no ratio is below q.
    """
    target = problem.target
    offset = float(target.portions @ multipliers) + target.epsilon * float(np.abs(multipliers).sum())
    margin = numerator + problem.patterns.prices(multipliers) - offset
    counted = denominator > 0
    return float((margin[counted] / denominator[counted]).min())
