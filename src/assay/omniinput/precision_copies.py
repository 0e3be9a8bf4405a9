"""Bootstrap copies of what a curve is made of: log density, and the precision of every bin.

Time blocks of the sampler speak for the density; items and annotators for the precision of a bin.
"""

import numpy as np
from numpy.typing import NDArray

from assay.omniinput.annotation_scores import Scores
from assay.omniinput.distribution import OutputDistribution

Array = NDArray[np.float64]

PSEUDO_ITEM = 0.5
"""Of each outcome, right and wrong, this many unseen items: Jeffreys' prior."""

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
    """(count, bins) copies of r(z) by a Bayesian bootstrap over items and over annotators.

    Items get gamma weights (Rubin 1981) and half an unseen item of either outcome joins them; with scores of
    0 and 1 the copies of a bin are then a Beta(k + 1/2, n - k + 1/2), Jeffreys' posterior, and a bin whose
    items are all right still has an uncertain precision. Annotators get weights of their own, the same in
    every bin, as strangers drawn from those who might have annotated (Owen 2007); their gamma shape makes the
    variance of a mean of n that of n strangers, not n / (n + 1) of it. One annotator has no such spread.
    """
    shape = effective_items(scores, bins)[scores.item_bins] * _within_bin(scores, bins)
    judged = np.bincount(scores.label_items, minlength=len(scores.item_bins))[scores.label_items]
    label_bins = scores.item_bins[scores.label_items]
    people = len(scores.annotators)
    person_shape = max(1 - 2 / people, LEAST_SHAPE) if people > 1 else np.inf
    copies = np.empty((count, bins))
    for copy in copies:
        items = generator.gamma(shape)
        weigh = np.ones(people) if people == 1 else generator.gamma(person_shape, size=people)
        labels = items[scores.label_items] * weigh[scores.label_annotators] / judged
        mass = np.bincount(scores.item_bins, weights=items, minlength=bins)
        total = np.bincount(label_bins, weights=labels, minlength=bins)
        right = np.bincount(label_bins, weights=labels * scores.label_scores, minlength=bins)
        mean = np.divide(right, total, out=np.zeros(bins), where=total > 0)
        unseen_right, unseen_wrong = generator.gamma(PSEUDO_ITEM, size=(2, bins))
        copy[:] = (mass * mean + unseen_right) / (mass + unseen_right + unseen_wrong)
    return copies


def _within_bin(scores: Scores, bins: int) -> Array:
    total = np.bincount(scores.item_bins, weights=scores.item_weights, minlength=bins)
    return np.asarray(scores.item_weights / total[scores.item_bins])


def log_density_copies(dist: OutputDistribution, count: int, generator: np.random.Generator) -> Array:
    """(count, bins) copies of the log density: its replicates, spread further where its error says so."""
    known = np.where(dist.visited, dist.log_density, -np.inf)
    if len(dist.replicates):
        copies = dist.replicates[generator.integers(len(dist.replicates), size=count)]
        copies = np.where(np.isnan(copies), -np.inf, copies)
    else:
        copies = np.tile(known, (count, 1))
    finite = np.where(np.isfinite(dist.replicates), dist.replicates, np.nan)
    seen = np.isfinite(finite).sum(axis=0) >= 2
    spread = np.zeros(len(known))
    spread[seen] = np.nanstd(finite[:, seen], axis=0, ddof=1)
    error = np.where(np.isfinite(dist.error), dist.error, spread)
    missing = np.sqrt(np.maximum(error**2 - spread**2, 0.0))
    return np.asarray(copies + missing * generator.normal(size=copies.shape))
