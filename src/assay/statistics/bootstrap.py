"""Bootstrap: rows drawn with replacement, as means or as counts."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

_DRAWN_AT_A_TIME = 4_000_000


def resampled_means(values: NDArray[Any], resamples: int, seed: int) -> NDArray[Any]:
    """Means of the values (N,) over rows drawn with replacement, `resamples` times.

    The same seed and number of rows draw the same rows, so that two quantities measured on one set of rows
    can be compared draw by draw. Complex values carry two quantities through one draw. Time is resamples x N;
    memory is bounded.
    """
    generator = np.random.default_rng(seed)
    count = len(values)
    block = max(1, _DRAWN_AT_A_TIME // count)
    means = []
    for start in range(0, resamples, block):
        rows = generator.integers(0, count, (min(block, resamples - start), count), dtype=np.int32)
        means.append(values[rows].mean(axis=1))
    return np.concatenate(means)


def resampled_counts(counts: NDArray[Any], resamples: int, seed: int) -> NDArray[np.float64]:
    """(resamples, kinds): how many rows of each kind there are among rows drawn with replacement.

    Such counts are multinomial, so the cost does not grow with the number of rows.
    """
    total = int(counts.sum())
    draws = np.random.default_rng(seed).multinomial(total, counts / total, size=resamples)
    return draws.astype(np.float64)


def poisson_counts(counts: NDArray[Any], resamples: int, seed: int) -> NDArray[np.float64]:
    """Like `resampled_counts`, for a statistic that does not depend on the total.

    Each count is drawn on its own. Given their total, such counts are multinomial; with many kinds this is
    ten times as fast.
    """
    draws = np.random.default_rng(seed).poisson(counts, size=(resamples, len(counts)))
    return draws.astype(np.float64)


def resampled_sums(counts: NDArray[Any], resamples: int, seed: int) -> NDArray[np.float64]:
    """(resamples, kinds): the sums of counts (inputs, kinds) over inputs drawn with replacement.

    For rows of which several come from one input: those are alike, so inputs are drawn and not rows.
    """
    inputs = len(counts)
    values = counts.astype(np.float64)
    generator = np.random.default_rng(seed)
    block = max(1, _DRAWN_AT_A_TIME // inputs)
    sums = []
    for start in range(0, resamples, block):
        size = min(block, resamples - start)
        drawn = generator.multinomial(inputs, np.full(inputs, 1 / inputs), size=size)
        sums.append(drawn.astype(np.float64) @ values)
    return np.concatenate(sums)
