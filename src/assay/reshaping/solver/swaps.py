"""Repair by swaps: one point out, one point in, until every cell is within its limits.

The number kept stays the same. A swap is chosen by what it does to the weighted violation of the limits;
cells that stay violated gain weight, so that the search leaves local minima (the idea of Feasibility Jump,
Luteberget and Sartor 2022, on pairs instead of single variables). Plain numpy, because a step is two passes
over the columns and nothing else; where limits are narrow it finds what branch and bound takes minutes for.
"""

import time

import numpy as np

from assay.reshaping.array_types import Floats, Integers
from assay.reshaping.solver.program import SubsetProblem

MOST_COLUMNS = 20_000
PATIENCE = 4  # steps for which a column that moved must rest
NEAR = 1e-9


def repaired(
    problem: SubsetProblem,
    number: int,
    counts: Integers,
    rng: np.random.Generator,
    seconds: float,
) -> Integers | None:
    """Counts within all limits that keep `number` points, or None; O(columns x neurons) per swap."""
    counts = _with_number(counts, problem, number, rng)
    end = time.monotonic() + seconds
    columns = rng.permutation(len(counts))[:MOST_COLUMNS]
    patterns, multiplicity = problem.patterns.take(columns), problem.multiplicity[columns]
    moving, rests = counts[columns].copy(), np.zeros(len(columns), np.int64)
    rows = patterns.rows()
    low, high = problem.target.limits(number)
    cells = problem.patterns.totals(counts.astype(np.float64)) + problem.fixed
    weights = np.ones(len(cells))
    step = 0
    while time.monotonic() < end:
        step += 1
        violated = (cells < low) | (cells > high)
        if not violated.any():
            found = counts.copy()
            found[columns] = moving
            return found
        weights[violated] += 0.1
        for sign in (-1, 1):
            prices = patterns.prices(_changes(cells, low, high, weights, sign))
            prices[(moving == 0) if sign < 0 else (moving == multiplicity)] = np.inf
            prices[rests > step] = np.inf
            chosen = _cheapest(prices, rng)
            moving[chosen] += sign
            cells[rows[chosen]] += sign
            rests[chosen] = step + PATIENCE
    return None


def _with_number(counts: Integers, problem: SubsetProblem, number: int, rng: np.random.Generator) -> Integers:
    """With points added or taken away at random until the number is right."""
    counts = counts.copy()
    missing = number - problem.fixed_points - int(counts.sum())
    sign = 1 if missing > 0 else -1
    able = np.flatnonzero(counts < problem.multiplicity if missing > 0 else counts > 0)
    counts[rng.permutation(able)[: abs(missing)]] += sign
    return counts


def _changes(cells: Floats, low: Integers, high: Integers, weights: Floats, sign: int) -> Floats:
    """What one more (or less) point in each cell adds to the weighted violation."""
    if sign > 0:
        return weights * ((cells >= high).astype(np.float64) - (cells < low))
    return weights * ((cells <= low).astype(np.float64) - (cells > high))


def _cheapest(prices: Floats, rng: np.random.Generator) -> int:
    best = np.flatnonzero(prices <= prices.min() + NEAR)
    return int(best[rng.integers(len(best))])
