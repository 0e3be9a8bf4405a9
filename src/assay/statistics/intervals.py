"""Intervals of a number: from bootstrap draws, from its standard error, or from counts."""

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binomtest, norm

from assay.errors import InputError

Interval: TypeAlias = tuple[float, float]
"""Lower and upper end."""


def check_level(level: float) -> None:
    """A level is the probability with which an interval or a test holds: 0.95 means 95 %."""
    if not 0 < level < 1:
        raise InputError(f"expected a level between 0 and 1, got {level:g}; 0.95 is usual")


def percentile_interval(draws: ArrayLike, level: float = 0.95) -> Interval:
    """The middle `level` of the draws, such as those of a bootstrap.

    >>> percentile_interval(range(101), level=0.5)
    (25.0, 75.0)
    """
    tail = (1 - level) / 2
    lower, upper = np.quantile(np.asarray(draws, np.float64), [tail, 1 - tail])
    return float(lower), float(upper)


def normal_interval(
    value: float,
    error: float,
    level: float = 0.95,
    *,
    smallest: float = -math.inf,
    largest: float = math.inf,
) -> Interval:
    """The value plus and minus a quantile of the normal distribution times its standard error.

    Both ends are cut to [smallest, largest], the values that are possible.

    >>> [round(end, 3) for end in normal_interval(0.9, 0.1, largest=1.0)]
    [0.704, 1.0]
    """
    reach = float(norm.isf((1 - level) / 2)) * error
    lower, upper = np.clip([value - reach, value + reach], smallest, largest).tolist()
    return lower, upper


def wilson_interval(count: int, total: int, level: float = 0.95) -> Interval:
    """Wilson's interval of a share, `count` of `total`.

    >>> [round(end, 4) for end in wilson_interval(9, 10)]
    [0.5958, 0.9821]
    """
    interval = binomtest(count, total).proportion_ci(level, method="wilson")
    return float(interval.low), float(interval.high)
