"""choose_items: which inputs people should judge, and how many of each bin."""

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from assay.errors import InputError
from assay.omniinput.annotation.items import AnnotationItems, run_name
from assay.omniinput.annotation.scores import distinct_inputs, framed_scores
from assay.omniinput.precision.bootstrap_copies import UNSEEN, bin_precision, effective_items
from assay.omniinput.sampling.distribution import OutputDistribution

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

PER_BIN = 50
NORMAL_QUANTILE = 1.96

HELPFUL = 0.1
"""A threshold can be helped if at least this share of its variance is in bins that hold more inputs."""


def choose_items(
    dist: OutputDistribution,
    per_bin: int | None = None,
    *,
    total: int | None = None,
    within: float | None = None,
    confident: str = "low",
    annotations: pd.DataFrame | None = None,
    seed: int = 0,
) -> AnnotationItems:
    """Distinct inputs to judge, drawn within each bin in proportion to what they stand for.

    per_bin: so many of every visited bin (50, as in the paper, if nothing is said). total: so many in all, or
    within: as many as needed until the 95 % interval of the precision at every threshold is expected to be no
    wider than plus or minus this; both go to the bins that move the curve most, by what `annotations` already
    say about them, on top of those. Draws are systematic (one random start, equal steps through the weights);
    an input drawn twice is one item that counts twice. What a bin does not hold cannot be drawn.
    """
    visited = _most_confident_first(dist, confident)
    extra = _extra(dist, visited, per_bin, total, within, annotations)
    generator = np.random.default_rng(seed)
    rows, weights = distinct_inputs(dist)
    bins = dist.kept.bins[rows]
    drawn = [_drawn(rows, weights, bins == bin, extra[bin], generator) for bin in np.sort(visited)]
    chosen, counts = (np.concatenate(parts).astype(np.int64) for parts in zip(*drawn, strict=True))
    kept = dist.kept
    texts = None if kept.texts is None else [kept.texts[row] for row in chosen]
    inputs, values = kept.inputs[torch.from_numpy(chosen)], dist.space.values
    return AnnotationItems(chosen, kept.bins[chosen], counts, inputs, texts, values, run_name(dist))


def _most_confident_first(dist: OutputDistribution, confident: str) -> Integers:
    if confident not in ("low", "high"):
        raise InputError(f"expected confident='low' or 'high', got {confident!r}")
    holds = np.bincount(dist.kept.bins, minlength=len(dist.log_density)) > 0
    visited = np.flatnonzero(dist.visited & holds)
    if not len(visited):
        raise InputError("expected a distribution with sampled inputs, got none; sample longer")
    return visited if confident == "low" else visited[::-1]


def _drawn(
    rows: Integers, weights: Array, inside: NDArray[np.bool_], count: int, generator: np.random.Generator
) -> tuple[Integers, Integers]:
    """Systematic resampling of `count` among those inside: which, and how often each."""
    mine = rows[inside]
    order = generator.permutation(len(mine))
    shares = weights[inside][order] / weights[inside].sum()
    ticks = np.searchsorted(np.cumsum(shares), (generator.random() + np.arange(count)) / max(count, 1))
    times = np.bincount(np.minimum(ticks, len(mine) - 1), minlength=len(mine))
    return mine[order][times > 0], times[times > 0]


def _extra(
    dist: OutputDistribution,
    visited: Integers,
    per_bin: int | None,
    total: int | None,
    within: float | None,
    annotations: pd.DataFrame | None,
) -> Integers:
    """How many to draw of every bin."""
    options = {"per_bin": per_bin, "total": total, "within": within}
    asked = [name for name, value in options.items() if value is not None]
    if len(asked) > 1:
        raise InputError(f"expected one of per_bin, total and within, got {' and '.join(asked)}; choose one")
    if any(value is not None and not value > 0 for value in options.values()):
        raise InputError("expected a positive number of items or a positive width; raise it")
    bins = len(dist.log_density)
    extra = np.zeros(bins, dtype=np.int64)
    if total is None and within is None:
        extra[visited] = PER_BIN if per_bin is None else per_bin
        return extra
    have, spread = _known(bins, annotations)
    room = np.bincount(dist.kept.bins, minlength=bins)[visited]
    found = allocation(dist.log_density[visited], spread[visited], have[visited], room, total, within)
    extra[visited] = found
    return extra


def _known(bins: int, annotations: pd.DataFrame | None) -> tuple[Array, Array]:
    """Effective items of every bin so far, and the variance of one item's score there."""
    if annotations is None or annotations["score"].notna().sum() == 0:
        return np.zeros(bins), np.full(bins, 0.25)
    scores = framed_scores(annotations, bins)
    have = effective_items(scores, bins)
    right = np.nan_to_num(bin_precision(scores, bins)) * have
    smoothed = (right + UNSEEN) / (have + 2 * UNSEEN)
    return have, smoothed * (1 - smoothed)


def allocation(
    log_density: Array, variance: Array, have: Array, room: Integers, total: int | None, within: float | None
) -> Integers:
    """Items to add to each bin (most confident first), one at a time where they help most.

    The variance of the precision at threshold t is sum over b <= t of (rho_b / R_t)^2 v_b / n_b with R_t the
    density up to t: an item helps all thresholds that its bin weighs in. With `total` the mean variance over
    thresholds falls fastest, with `within` the largest. Every bin gets one to begin with, as none may stay
    without. A threshold ruled by bins that hold no more inputs is given up.
    """
    squares = _shares(log_density) ** 2
    added = np.where(have > 0, 0, np.minimum(1, room))
    while total is None or added.sum() < total:
        count = np.maximum(have + added, 1.0)
        parts = (variance / count)[:, None] * squares
        wanted = np.ones(len(squares), dtype=bool)
        if within is not None:
            wanted = _worst(parts, added < room, (within / NORMAL_QUANTILE) ** 2)
        gain = np.where(added < room, (parts / (count + 1)[:, None])[:, wanted].sum(axis=1), 0.0)
        if gain.max() <= 0:
            break
        added[gain.argmax()] += 1
    return np.asarray(added, dtype=np.int64)


def _shares(log_density: Array) -> Array:
    """rho_b / R_t for every bin b (rows) and threshold t (columns); zero where t comes before b."""
    ratios = np.exp(np.minimum(log_density[:, None] - np.logaddexp.accumulate(log_density), 0.0))
    return np.asarray(np.triu(ratios))


def _worst(parts: Array, has_room: NDArray[np.bool_], limit: float) -> NDArray[np.bool_]:
    """The threshold of largest variance among those above the limit that more items can still help."""
    variance = parts.sum(axis=0)
    helpful = parts[has_room].sum(axis=0) >= HELPFUL * variance
    candidates = np.where((variance > limit) & helpful, variance, 0.0)
    return np.asarray((np.arange(len(variance)) == candidates.argmax()) & (candidates.max() > 0))
