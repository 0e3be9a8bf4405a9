"""choose_items: which inputs people should judge, and how many from each bin."""

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from assay.errors import InputError
from assay.omniinput.annotation.items import AnnotationItems, run_name
from assay.omniinput.annotation.scores import UNSEEN, distinct_inputs, scores_of
from assay.omniinput.sampling.distribution import OutputDistribution

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

PER_BIN = 50
NORMAL_QUANTILE = 1.96

HELPFUL = 0.1
"""More items help a threshold if at least this share of its variance is in bins with inputs left to judge."""


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
    """Distinct inputs to judge, drawn within each bin in proportion to their weight.

    Give one of three. per_bin: the number drawn from every visited bin (default 50, as in the paper). total:
    the number in all. within: as many as needed until the 95 % interval of the precision at every threshold
    is expected to be no wider than plus or minus this. With total and within, items go to the bins that move
    the curve most, given `annotations` already made, and are added to those. Draws are systematic (one random
    start, equal steps through the weights); an input drawn twice is one item that counts twice. No more can
    be drawn from a bin than it contains.
    """
    visited = _most_confident_first(dist, confident)
    draws = _draws_per_bin(dist, visited, per_bin, total, within, annotations)
    generator = np.random.default_rng(seed)
    rows, weights = distinct_inputs(dist)
    bins = dist.kept.bins[rows]
    drawn = [_systematic_draw(rows, weights, bins == bin, draws[bin], generator) for bin in np.sort(visited)]
    chosen, counts = (np.concatenate(parts).astype(np.int64) for parts in zip(*drawn, strict=True))
    kept = dist.kept
    texts = None if kept.texts is None else [kept.texts[row] for row in chosen]
    inputs, values = kept.inputs[torch.from_numpy(chosen)], dist.space.values
    return AnnotationItems(chosen, kept.bins[chosen], counts, inputs, texts, values, run_name(dist))


def _most_confident_first(dist: OutputDistribution, confident: str) -> Integers:
    if confident not in ("low", "high"):
        raise InputError(f"expected confident='low' or 'high', got {confident!r}")
    has_inputs = np.bincount(dist.kept.bins, minlength=len(dist.log_density)) > 0
    visited = np.flatnonzero(dist.visited & has_inputs)
    if not len(visited):
        raise InputError("expected a distribution with sampled inputs, got none; sample longer")
    return visited if confident == "low" else visited[::-1]


def _systematic_draw(
    rows: Integers, weights: Array, inside: NDArray[np.bool_], count: int, generator: np.random.Generator
) -> tuple[Integers, Integers]:
    """Which of the rows inside are drawn, and how often each, in `count` systematic draws."""
    mine = rows[inside]
    order = generator.permutation(len(mine))
    shares = weights[inside][order] / weights[inside].sum()
    ticks = np.searchsorted(np.cumsum(shares), (generator.random() + np.arange(count)) / max(count, 1))
    times = np.bincount(np.minimum(ticks, len(mine) - 1), minlength=len(mine))
    return mine[order][times > 0], times[times > 0]


def _draws_per_bin(
    dist: OutputDistribution,
    visited: Integers,
    per_bin: int | None,
    total: int | None,
    within: float | None,
    annotations: pd.DataFrame | None,
) -> Integers:
    """How many to draw from every bin."""
    options = {"per_bin": per_bin, "total": total, "within": within}
    asked = [name for name, value in options.items() if value is not None]
    if len(asked) > 1:
        raise InputError(f"expected one of per_bin, total and within, got {' and '.join(asked)}; choose one")
    if any(value is not None and not value > 0 for value in options.values()):
        raise InputError("expected a positive number of items or a positive width; raise it")
    bins = len(dist.log_density)
    draws = np.zeros(bins, dtype=np.int64)
    if total is None and within is None:
        draws[visited] = PER_BIN if per_bin is None else per_bin
        return draws
    have, spread = _judged_so_far(dist, annotations)
    room = np.bincount(dist.kept.bins, minlength=bins)[visited]
    draws[visited] = allocation(
        dist.log_density[visited], spread[visited], have[visited], room, total, within
    )
    return draws


def _judged_so_far(dist: OutputDistribution, annotations: pd.DataFrame | None) -> tuple[Array, Array]:
    """Effective number of items judged in every bin, and the variance of one item's score there."""
    bins = len(dist.log_density)
    if annotations is None or annotations["score"].notna().sum() == 0:
        return np.zeros(bins), np.full(bins, 0.25)
    scores = scores_of(dist, annotations)
    have = scores.effective_items(bins)
    right = np.nan_to_num(scores.bin_precision(bins)) * have
    smoothed = (right + UNSEEN) / (have + 2 * UNSEEN)
    return have, smoothed * (1 - smoothed)


def allocation(
    log_density: Array, variance: Array, have: Array, room: Integers, total: int | None, within: float | None
) -> Integers:
    """Items to add to each bin (most confident first), one at a time where they help most.

    The variance of the precision at threshold t is sum over b <= t of (rho_b / R_t)^2 v_b / n_b with R_t the
    density up to t: an item helps all thresholds that its bin contributes to. With `total` the mean variance
    over thresholds falls fastest, with `within` the largest. Every bin gets one item first, since none may be
    left out. A threshold dominated by bins without more inputs is given up.
    """
    squares = _shares(log_density) ** 2
    added = np.where(have > 0, 0, np.minimum(1, room))
    while total is None or added.sum() < total:
        count = np.maximum(have + added, 1.0)
        parts = (variance / count)[:, None] * squares
        wanted = np.ones(len(squares), dtype=bool)
        if within is not None:
            wanted = _worst_threshold(parts, added < room, (within / NORMAL_QUANTILE) ** 2)
        gain = np.where(added < room, (parts / (count + 1)[:, None])[:, wanted].sum(axis=1), 0.0)
        if gain.max() <= 0:
            break
        added[gain.argmax()] += 1
    return np.asarray(added, dtype=np.int64)


def _shares(log_density: Array) -> Array:
    """rho_b / R_t for every bin b (rows) and threshold t (columns); zero if t comes before b."""
    ratios = np.exp(np.minimum(log_density[:, None] - np.logaddexp.accumulate(log_density), 0.0))
    return np.asarray(np.triu(ratios))


def _worst_threshold(parts: Array, has_room: NDArray[np.bool_], limit: float) -> NDArray[np.bool_]:
    """The threshold with the largest variance above the limit that more items can still reduce."""
    variance = parts.sum(axis=0)
    helpful = parts[has_room].sum(axis=0) >= HELPFUL * variance
    candidates = np.where((variance > limit) & helpful, variance, 0.0)
    return np.asarray((np.arange(len(variance)) == candidates.argmax()) & (candidates.max() > 0))
