"""Entropy balancing: weights instead of removal (Hainmueller 2012), within epsilon.

Among all weightings of the test points whose portions match operation within epsilon, the one closest to
equal weights in Kullback-Leibler divergence. Its dual is smooth, with two variables per cell,

    minimise  log sum_k n_k exp(price_k) - p . (a - b) + epsilon sum(a + b)      over a, b >= 0

where price_k sums a - b over the cells of point k, and L-BFGS-B from scipy solves it with one pass over the
points per step.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

from assay.reshaping.array_types import Floats
from assay.reshaping.solver import SubsetProblem

STEPS = 2000


@dataclass(frozen=True, eq=False)
class Weighting:
    """Weight per distinct pattern (they sum to one), and the largest difference of portions that is left."""

    weights: Floats
    similarity: float


def balanced(problem: SubsetProblem) -> Weighting:
    """The most equal weights that match within epsilon; O(points x neurons) per step, hundreds of steps."""
    patterns, target = problem.patterns, problem.target
    portions, cells = target.portions, problem.patterns.cells
    base = np.log(problem.multiplicity)

    def objective(values: Floats) -> tuple[float, Floats]:
        multipliers = values[:cells] - values[cells:]
        exponents = base + patterns.prices(multipliers)
        size = float(logsumexp(exponents))
        reached = patterns.totals(np.exp(exponents - size))
        slope = reached - portions
        value = size - float(portions @ multipliers) + target.epsilon * float(values.sum())
        return value, np.concatenate([slope, -slope]) + target.epsilon

    start = np.zeros(2 * cells)
    answer = minimize(
        objective,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, None)] * len(start),
        options={"maxiter": STEPS, "maxfun": 2 * STEPS, "ftol": 1e-13, "gtol": 1e-6, "maxcor": 30},
    )
    exponents = base + patterns.prices(answer.x[:cells] - answer.x[cells:])
    weights = np.exp(exponents - logsumexp(exponents))
    return Weighting(weights, float(np.abs(patterns.totals(weights) - portions).max()))
