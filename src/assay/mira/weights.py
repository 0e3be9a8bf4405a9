"""p(epsilon) of MIRA's Eq. 4: how much each perturbation size counts."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import quad

from assay.errors import InputError

Weight: TypeAlias = Callable[[float], float] | Sequence[float]
"""A density over epsilon that integrates to 1 over the range, or one weight per step, summing to 1."""


def epsilon_steps(low: float, high: float, steps: int) -> NDArray[np.float64]:
    """`steps` values, evenly from low to high, both included; the middle for a single one."""
    return np.linspace(low, high, steps) if steps > 1 else np.array([(low + high) / 2])


def step_weights(epsilons: NDArray[np.float64], weight: Weight | None = None) -> NDArray[np.float64]:
    """Weights that sum to 1 and make a sum over the steps the integral of Eq. 4, by the trapezoid rule.

    By default every epsilon counts the same, p = 1 / (high - low), as in the paper.

    >>> step_weights(np.array([1.0, 1.5, 2.0]))
    array([0.25, 0.5 , 0.25])
    """
    if weight is not None and not callable(weight):
        return _checked_weights(np.asarray(weight, dtype=np.float64), len(epsilons))
    parts = np.ones(len(epsilons))
    if len(epsilons) > 1:
        parts[[0, -1]] = 0.5
    if callable(weight):
        parts *= _density_at_steps(weight, epsilons)
    normalised: NDArray[np.float64] = parts / parts.sum()
    return normalised


def _checked_weights(weights: NDArray[np.float64], steps: int) -> NDArray[np.float64]:
    if weights.shape != (steps,) or not (weights >= 0).all() or abs(weights.sum() - 1) > 1e-6:
        raise InputError(
            f"expected {steps} weights of at least 0 that sum to 1, one per step, got {weights.size} that "
            f"sum to {weights.sum():.6g} (smallest {weights.min(initial=np.inf):.3g}); divide by their sum"
        )
    normalised: NDArray[np.float64] = weights / weights.sum()
    return normalised


def _density_at_steps(weight: Callable[[float], float], epsilons: NDArray[np.float64]) -> NDArray[np.float64]:
    low, high = float(epsilons[0]), float(epsilons[-1])
    values = np.array([float(weight(float(epsilon))) for epsilon in epsilons])
    usable = bool(np.isfinite(values).all()) and values.min() >= 0
    # `quad` also sees peaks between steps; with full_output it returns its warnings instead of raising them.
    mass = quad(weight, low, high, limit=200, full_output=1)[0] if usable and high > low else np.nan
    if not usable or abs(mass - 1) > 1e-3:
        raise InputError(
            f"expected a density of at least 0 that integrates to 1 over [{low:.4g}, {high:.4g}], got one "
            f"with the integral {mass:.4g} and smallest value {values.min():.3g}; divide it by its integral, "
            "or pass one weight per step"
        )
    if values.sum() == 0:
        raise InputError("expected a density above 0 at some step, got 0 at all; use more steps")
    return values
