"""When two histograms are similar: by portions and by Kullback-Leibler divergence (Definitions 2 and 3)."""

import numpy as np

from assay.errors import InputError
from assay.reshaping.array_types import Floats, Integers
from assay.reshaping.histogram import Histogram


def portion_similarity(a: Histogram, b: Histogram) -> float:
    """The smallest epsilon for which the two are epsilon-portion similar (Eq. 7); symmetric.

    The largest difference of portions over all neurons and bins, overflow included. Cross-multiplied in whole
    numbers, so that only one division rounds: portions 8/10 and 7/10 differ by 0.1, not by
    0.10000000000000009.
    """
    left, right = _counts(a, b)
    return float(np.abs(left * b.total - right * a.total).max() / (a.total * b.total))


def kl_similarity(a: Histogram, b: Histogram) -> float:
    """The smallest kappa for which the two are kappa-KL similar (Eq. 6), `a` the test set and `b` operation.

    The largest Kullback-Leibler divergence of a neuron's portions. A bin that is empty in both is left
    out; one that only `a` fills makes it infinite (the paper's two heuristics). A bin that only `b` fills
    adds nothing.
    """
    left, right = _counts(a, b)
    return float(_divergences(left / a.total, right / b.total).max())


def implied_kappa(test: Histogram, epsilon: float) -> float:
    """A kappa that holds for every operational histogram within epsilon of `test` (end of Section 3).

    The worst case in every bin at once: operation has epsilon less than the test set. Infinite as soon as an
    occupied bin could be empty in operation. Very conservative, as the paper says: the portions of that worst
    case do not add up to one.
    """
    if not 0 < epsilon <= 1:
        raise InputError(f"expected epsilon above 0 and at most 1, got {epsilon}")
    _check_counted(test)
    portions = test.window / test.total
    return float(_divergences(portions, np.maximum(portions - epsilon, 0.0)).max())


def _counts(a: Histogram, b: Histogram) -> tuple[Integers, Integers]:
    """The counts of both over the bins that either has."""
    _, left, right = a.aligned(b)
    _check_counted(a, b)
    return left, right


def _divergences(left: Floats, right: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(left > 0, left * np.log(left / right), 0.0)
    return np.asarray(terms.sum(axis=1), np.float64)


def _check_counted(*histograms: Histogram) -> None:
    if not all(histogram.total for histogram in histograms):
        raise InputError(
            "expected histograms with at least one input each, got an empty one; count some first"
        )
