"""Bootstrap resamples of the log density and of the precision of every bin.

The density is resampled over time blocks of the sampler, the precision over items and annotators.
"""

import numpy as np
from numpy.typing import NDArray

from assay.omniinput.annotation.audit import Audit
from assay.omniinput.annotation.scores import UNSEEN, Scores
from assay.omniinput.sampling.distribution import OutputDistribution

Array = NDArray[np.float64]

LEAST_SHAPE = 0.1


def audited_precision_resamples(audit: Audit, bins: int, count: int, generator: np.random.Generator) -> Array:
    """(2, count, bins) resamples of a judge's precision corrected by people.

    With the share of least variance, what people add is uncorrelated with the judge's part, so that each is
    resampled by itself: over the inputs the judge scored, and over audited inputs and annotators. The unseen
    half item is one about which the judge says what it says on average.
    """
    judge = audit.judge_part(bins)
    low = np.nan_to_num(-judge)
    left = bin_precision_resamples(audit.corrections, bins, count, generator, (low, 1 + low))
    whole = bin_precision_resamples(audit.judged, bins, count, generator, (0.0, 0.0), unseen_items=0.0)[0]
    return np.asarray(np.clip(left + audit.share * whole, 0.0, 1.0))


def bin_precision_resamples(
    scores: Scores,
    bins: int,
    count: int,
    generator: np.random.Generator,
    unseen_scores: tuple[Array | float, Array | float] = (0.0, 1.0),
    unseen_items: float = UNSEEN,
) -> Array:
    """(2, count, bins) resamples of r(z), for lower and for upper limits, over items and annotators.

    A Bayesian bootstrap: items get gamma weights (Rubin 1981). Half an unseen item is added to every bin,
    wrong (`unseen_scores`) in the resamples for the lower limit and right in those for the upper one. A
    bin whose items are all right thus still has an uncertain precision, and sums over many bins are not
    shifted. With k of n items right the resamples are a Beta(k, n - k + 1/2) and a Beta(k + 1/2, n - k);
    a whole unseen item would give the interval of Clopper and Pearson. Annotators get weights of their
    own, the same in every bin, as a sample of everyone who might have annotated (Owen 2007); their gamma
    shape makes the variance of a mean over n annotators that of a mean over n independent people. A
    single annotator adds no such spread.

    Inputs of one stretch of the run are not independent, within a bin or across bins: they share beginnings,
    or places where a walker stayed. So a stretch has a weight of its own, the same in every bin (a bootstrap
    of clusters), and items vary by as much as the B stretches of their bin cannot show, 1 / B of the whole.
    """
    blocks = scores.effective_blocks(bins)[scores.item_bins]
    shape = scores.effective_items(bins)[scores.item_bins] * _share_of_bin(scores, bins)
    judged = np.bincount(scores.label_items, minlength=len(scores.item_bins))[scores.label_items]
    label_bins = scores.item_bins[scores.label_items]
    people = len(scores.annotators)
    resamples = np.empty((2, count, bins))
    for number in range(count):
        items = generator.gamma(shape * blocks) / blocks * _block_weights(scores, generator)
        annotators = _annotator_weights(people, generator)[scores.label_annotators]
        labels = items[scores.label_items] * annotators / judged
        mass = np.bincount(scores.item_bins, weights=items, minlength=bins)
        total = np.bincount(label_bins, weights=labels, minlength=bins)
        right = np.bincount(label_bins, weights=labels * scores.label_scores, minlength=bins)
        mean = np.divide(right, total, out=np.zeros(bins), where=total > 0)
        unseen = generator.gamma(unseen_items, size=bins)
        whole = np.maximum(mass + unseen, 1e-300)
        for limit, score in enumerate(unseen_scores):
            resamples[limit, number] = (mass * mean + unseen * score) / whole
    return resamples


def _block_weights(scores: Scores, generator: np.random.Generator) -> Array:
    """The weight of each item's stretch of the run (Rubin 1981); 1 where these are unknown."""
    if scores.item_blocks is None:
        return np.ones(len(scores.item_bins))
    weights: Array = generator.exponential(size=int(scores.item_blocks.max(initial=0)) + 1)
    return weights[scores.item_blocks]


def _annotator_weights(people: int, generator: np.random.Generator) -> Array:
    """A weight per annotator; with a total shape of n - 2 a mean varies as that of n independent people."""
    return generator.gamma(max(1 - 2 / people, LEAST_SHAPE), size=people) if people > 1 else np.ones(1)


def _share_of_bin(scores: Scores, bins: int) -> Array:
    total = np.bincount(scores.item_bins, weights=scores.item_weights, minlength=bins)
    return np.asarray(scores.item_weights / total[scores.item_bins])


def log_density_resamples(dist: OutputDistribution, count: int, generator: np.random.Generator) -> Array:
    """(count, bins) resamples of the log density, with noise added until their spread equals its error."""
    known = np.where(dist.visited, dist.log_density, -np.inf)
    if len(dist.resamples):
        resamples = dist.resamples[generator.integers(len(dist.resamples), size=count)]
        resamples = np.where(np.isnan(resamples), -np.inf, resamples)
    else:
        resamples = np.tile(known, (count, 1))
    finite = np.where(np.isfinite(dist.resamples), dist.resamples, np.nan)
    seen = np.isfinite(finite).sum(axis=0) >= 2
    spread = np.zeros(len(known))
    spread[seen] = np.nanstd(finite[:, seen], axis=0, ddof=1)
    error = np.where(np.isfinite(dist.error), dist.error, spread)
    missing = np.sqrt(np.maximum(error**2 - spread**2, 0.0))
    return np.asarray(resamples + missing * generator.normal(size=resamples.shape))
