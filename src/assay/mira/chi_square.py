"""Surprisal: how unlikely a Mahalanobis distance is, on a scale that dimensions share (MIRA, Eq. 3)."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammainc, gammaincc, gammaln

Array = NDArray[np.float64]

_UNDERFLOW = 1e-280
"""Survival below which `gammaincc` nears the smallest double and its logarithm is lost."""


def surprisal(statistic: ArrayLike, dimensions: int) -> Any:
    """-log P(X > statistic) for X chi-square with `dimensions` degrees of freedom, in nats.

    The squared Mahalanobis distance of a Gaussian row is such an X, so that its surprisal has an
    exponential distribution with mean 1, whatever the dimension. Accurate to a relative 1e-12; scipy's
    `chi2.logsf` is infinite below a survival of 1e-308, where the features of attacked inputs usually lie.

    >>> round(float(surprisal(2.0, 2)), 9), round(float(surprisal(1e6, 2)), 9)
    (1.0, 500000.0)
    """
    a, x = dimensions / 2, np.asarray(statistic, dtype=np.float64) / 2
    below, above = gammainc(a, x), gammaincc(a, x)
    with np.errstate(divide="ignore"):
        # Each form where it loses nothing: 1 - P for small x, Q for large x, log Q beyond the doubles.
        result = np.where(below < 0.5, -np.log1p(-below), -np.log(above))
    far = np.isfinite(x) & (above < _UNDERFLOW)
    if far.any():
        result[far] = _far_surprisal(a, x[far])
    return result


def _far_surprisal(a: float, x: Array) -> Array:
    """-log Q(a, x) for x far above a, by Legendre's continued fraction (DLMF 8.9.2).

    Gamma(a, x) = exp(-x) x^a / (x + 1 - a - 1 (1 - a) / (x + 3 - a - 2 (2 - a) / (x + 5 - a - ...))),
    evaluated from the front (Lentz) for all values at once, until none changes.
    """
    denominator = x + 1 - a
    ratio = 1 / denominator
    fraction, numerator = ratio.copy(), np.full_like(x, np.inf)
    for n in range(1, 10_000):
        term = -n * (n - a)
        denominator += 2
        ratio = 1 / (term * ratio + denominator)
        numerator = denominator + term / numerator
        change = ratio * numerator
        fraction *= change
        if np.abs(change - 1).max() < 1e-15:
            break
    return x - a * np.log(x) + gammaln(a) - np.log(fraction)
