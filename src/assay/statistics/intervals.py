"""Intervals from draws."""

import numpy as np
from numpy.typing import ArrayLike


def percentile_interval(draws: ArrayLike, level: float = 0.95) -> tuple[float, float]:
    """The middle `level` of the draws, such as those of a bootstrap: its lower and upper end.

    >>> percentile_interval(range(101), level=0.5)
    (25.0, 75.0)
    """
    tail = (1 - level) / 2
    lower, upper = np.quantile(np.asarray(draws, np.float64), [tail, 1 - tail])
    return float(lower), float(upper)
