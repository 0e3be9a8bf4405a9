"""When two histograms are alike: portion and Kullback-Leibler similarity (Definitions 2 and 3)."""

import numpy as np

from assay.errors import InputError
from assay.reshaping.array_types import Floats
from assay.reshaping.histogram import Histogram


def portion_similarity(a: Histogram, b: Histogram) -> float:
    """The smallest epsilon for which the two are epsilon-portion similar (Eq. 7); symmetric.

    The largest difference of portions over all neurons and bins, overflow included. Cross-multiplied in whole
    numbers, so that only one division rounds: portions 8/10 and 7/10 differ by 0.1, not by
    0.10000000000000009.
    """
    _check(a, b)
    left, right = aligned(a, b)
    return float(np.abs(left * b.total - right * a.total).max() / (a.total * b.total))


def kl_similarity(a: Histogram, b: Histogram) -> float:
    """The smallest kappa for which the two are kappa-KL similar (Eq. 6), `a` the test set and `b` operation.

    The largest Kullback-Leibler divergence of a neuron's portions. A bin empty in both is left out; one that
    only `a` has makes it infinite (the paper's two heuristics). A bin that only `b` has adds nothing.
    """
    _check(a, b)
    left, right = aligned(a, b)
    return float(_divergences(left / a.total, right / b.total).max())


def implied_kappa(test: Histogram, epsilon: float) -> float:
    """A kappa that holds for every operational histogram within epsilon of `test` (end of Section 3).

    The worst case in every bin at once: operation has epsilon less than the test set. Infinite as soon as an
    occupied bin could be empty in operation. Overly conservative, as the paper says: the portions of that
    worst case do not add up to one.
    """
    if not 0 < epsilon <= 1:
        raise InputError(f"expected epsilon above 0 and at most 1, got {epsilon}")
    _check(test, test)
    portions = test.window / test.total
    return float(_divergences(portions, np.maximum(portions - epsilon, 0.0)).max())


def aligned(a: Histogram, b: Histogram) -> tuple[np.ndarray[tuple[int, int], np.dtype[np.int64]], ...]:
    """The counts of both over the bins that either has; a clear error where they count different things."""
    a.check_same_bins(b)
    first = min(a.first, b.first)
    last = max(a.first + a.window.shape[1], b.first + b.window.shape[1]) - 1
    return a.between(first, last), b.between(first, last)


def _divergences(left: Floats, right: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(left > 0, left * np.log(left / right), 0.0)
    return np.asarray(terms.sum(axis=1), np.float64)


def _check(a: Histogram, b: Histogram) -> None:
    a.check_same_bins(b)
    if not a.total or not b.total:
        raise InputError(
            "expected histograms with at least one input each, got an empty one; count some first"
        )
