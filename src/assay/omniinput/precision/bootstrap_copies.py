"""Bootstrap copies of what a curve is made of: log density, and the precision of every bin.

Time blocks of the sampler speak for the density; items and annotators for the precision of a bin.
"""

import numpy as np
from numpy.typing import NDArray

from assay.omniinput.annotation.scores import Scores
from assay.omniinput.sampling.distribution import OutputDistribution

Array = NDArray[np.float64]

UNSEEN = 0.5
"""Half an item that nobody judged joins every bin: wrong for the lower limit, right for the upper one."""

LEAST_SHAPE = 0.1


def bin_precision(scores: Scores, bins: int) -> Array:
    """r(z) of the paper: the weighted mean score of a bin's items; NaN where none was judged."""
    total = np.bincount(scores.item_bins, weights=scores.item_weights, minlength=bins)
    right = np.bincount(scores.item_bins, weights=scores.item_weights * scores.item_scores, minlength=bins)
    return np.asarray(np.divide(right, total, out=np.full(bins, np.nan), where=total > 0))


def effective_items(scores: Scores, bins: int) -> Array:
    """(sum w)^2 / sum w^2: how many equally weighted items a bin's are worth."""
    total = np.bincount(scores.item_bins, weights=scores.item_weights, minlength=bins)
    squares = np.bincount(scores.item_bins, weights=scores.item_weights**2, minlength=bins)
    return np.divide(total**2, squares, out=np.zeros(bins), where=squares > 0)


def bin_precision_copies(scores: Scores, bins: int, count: int, generator: np.random.Generator) -> Array:
    """(2, count, bins) copies of r(z), for lower and for upper limits, over items and over annotators.

    A Bayesian bootstrap: items get gamma weights (Rubin 1981). Half an unseen item joins them, wrong in the
    copies for the lower limit and right in those for the upper one, so that a bin whose items are all right
    still has an uncertain precision, and so that sums over many bins stay where they are. With k of n items
    right the copies are a Beta(k, n - k + 1/2) and a Beta(k + 1/2, n - k); a whole unseen item would give the
    interval of Clopper and Pearson. Annotators get weights of their own, the same in every bin, as strangers
    drawn from those who might have annotated (Owen 2007); their gamma shape makes the variance of a mean over
    n annotators that of n strangers. One annotator has no such spread.
    """
    shape = effective_items(scores, bins)[scores.item_bins] * _within_bin(scores, bins)
    judged = np.bincount(scores.label_items, minlength=len(scores.item_bins))[scores.label_items]
    label_bins = scores.item_bins[scores.label_items]
    people = len(scores.annotators)
    copies = np.empty((2, count, bins))
    for copy in range(count):
        items = generator.gamma(shape)
        labels = items[scores.label_items] * _weighed(people, generator)[scores.label_annotators] / judged
        mass = np.bincount(scores.item_bins, weights=items, minlength=bins)
        total = np.bincount(label_bins, weights=labels, minlength=bins)
        right = np.bincount(label_bins, weights=labels * scores.label_scores, minlength=bins)
        mean = np.divide(right, total, out=np.zeros(bins), where=total > 0)
        unseen = generator.gamma(UNSEEN, size=bins)
        whole = np.maximum(mass + unseen, 1e-300)
        copies[0, copy], copies[1, copy] = mass * mean / whole, (mass * mean + unseen) / whole
    return copies


def _weighed(people: int, generator: np.random.Generator) -> Array:
    """A weight for every annotator; at a total shape of n - 2 a mean varies as one of n strangers does."""
    return generator.gamma(max(1 - 2 / people, LEAST_SHAPE), size=people) if people > 1 else np.ones(1)


def _within_bin(scores: Scores, bins: int) -> Array:
    total = np.bincount(scores.item_bins, weights=scores.item_weights, minlength=bins)
    return np.asarray(scores.item_weights / total[scores.item_bins])


def log_density_copies(dist: OutputDistribution, count: int, generator: np.random.Generator) -> Array:
    """(count, bins) copies of the log density, spread further where its error says so."""
    known = np.where(dist.visited, dist.log_density, -np.inf)
    if len(dist.copies):
        copies = dist.copies[generator.integers(len(dist.copies), size=count)]
        copies = np.where(np.isnan(copies), -np.inf, copies)
    else:
        copies = np.tile(known, (count, 1))
    finite = np.where(np.isfinite(dist.copies), dist.copies, np.nan)
    seen = np.isfinite(finite).sum(axis=0) >= 2
    spread = np.zeros(len(known))
    spread[seen] = np.nanstd(finite[:, seen], axis=0, ddof=1)
    error = np.where(np.isfinite(dist.error), dist.error, spread)
    missing = np.sqrt(np.maximum(error**2 - spread**2, 0.0))
    return np.asarray(copies + missing * generator.normal(size=copies.shape))
