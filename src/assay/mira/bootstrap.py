"""How much the score would vary with other test inputs."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_HELD = 4_000_000  # draws held at a time


def resampled_scores(moved: Array, clean: Array, resamples: int, seed: int) -> Array:
    """mean(moved) / mean(clean) - 1 over test inputs drawn with replacement, `resamples` times.

    The same seed and number of inputs draw the same inputs, so scores of two networks on one test set
    are compared pair by pair. Time is resamples x N; memory is bounded.
    """
    generator = np.random.default_rng(seed)
    count, block = len(clean), max(1, _HELD // len(clean))
    both = moved + 1j * clean  # one gather and one mean for the pair
    draws = []
    for start in range(0, resamples, block):
        chosen = generator.integers(0, count, (min(block, resamples - start), count), dtype=np.int32)
        means = both[chosen].mean(axis=1)
        draws.append(relative_rise(means.real, means.imag))
    return np.concatenate(draws)


def relative_rise(moved: Array, clean: Array) -> Array:
    """moved / clean - 1; NaN where clean is 0, which is no baseline."""
    ratio: Array = np.divide(moved, clean, out=np.full_like(moved, np.nan), where=clean > 0)
    return ratio - 1


def interval(draws: Array, confidence: float) -> tuple[float, float]:
    """The percentile interval."""
    low, high = np.quantile(draws, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)
