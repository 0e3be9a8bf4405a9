"""Scores: checked judgements of inputs, from people, a csv or a function."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.errors import InputError
from assay.omniinput.annotation.items import run_name
from assay.omniinput.annotation.review import counted
from assay.omniinput.sampling.distribution import OutputDistribution

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Judge = Callable[[Tensor], Any]
Annotations = Judge | pd.DataFrame

JUDGE = "judge"
"""The annotator's name where the scores come from a function."""

ROWS_AT_A_TIME = 1024

UNSEEN = 0.5
"""Half an item that nobody judged is added to every bin: wrong for the lower limit, right for the upper
one."""


@dataclass(frozen=True, eq=False)
class Scores:
    """Items with their bin and their weight in it; labels with the item, the annotator and the score.

    `item_rows` are rows of the distribution's kept inputs, -1 where unknown; `item_blocks` the stretches of
    the run that these are from, None where any is unknown.
    """

    item_bins: Integers
    item_weights: Array
    item_rows: Integers
    label_items: Integers
    label_annotators: Integers
    label_scores: Array
    annotators: tuple[str, ...]
    item_blocks: Integers | None = None

    @property
    def item_scores(self) -> Array:
        """The mean score of each item over its annotators."""
        size = len(self.item_bins)
        count = np.bincount(self.label_items, minlength=size)
        total = np.bincount(self.label_items, weights=self.label_scores, minlength=size)
        return np.asarray(total / np.maximum(count, 1))

    def bin_precision(self, bins: int) -> Array:
        """r(z) of the paper: the weighted mean score of the items in each bin; NaN if none was judged."""
        total = np.bincount(self.item_bins, weights=self.item_weights, minlength=bins)
        right = np.bincount(self.item_bins, weights=self.item_weights * self.item_scores, minlength=bins)
        return np.asarray(np.divide(right, total, out=np.full(bins, np.nan), where=total > 0))

    def effective_items(self, bins: int) -> Array:
        """(sum w)^2 / sum w^2: how many equally weighted items those of each bin are worth."""
        total = np.bincount(self.item_bins, weights=self.item_weights, minlength=bins)
        squares = np.bincount(self.item_bins, weights=self.item_weights**2, minlength=bins)
        return np.divide(total**2, squares, out=np.zeros(bins), where=squares > 0)

    def effective_blocks(self, bins: int) -> Array:
        """The same of the stretches of the run that the items of each bin are from; 1 where unknown."""
        if self.item_blocks is None:
            return np.ones(bins)
        number = self.item_blocks.max(initial=0) + 1
        place = self.item_bins * number + self.item_blocks
        weights = np.bincount(place, weights=self.item_weights, minlength=bins * number)
        weights = weights.reshape(bins, number)
        squares: Array = (weights**2).sum(axis=1)
        return np.asarray(np.divide(weights.sum(axis=1) ** 2, squares, out=np.ones(bins), where=squares > 0))

    def of_items(self, chosen: NDArray[np.bool_]) -> "Scores":
        """The scores of some of the items."""
        place = np.cumsum(chosen) - 1
        labels = chosen[self.label_items]
        return Scores(
            self.item_bins[chosen],
            self.item_weights[chosen],
            self.item_rows[chosen],
            place[self.label_items[labels]],
            self.label_annotators[labels],
            self.label_scores[labels],
            self.annotators,
            None if self.item_blocks is None else self.item_blocks[chosen],
        )


def scores_of(dist: OutputDistribution, annotations: Annotations) -> Scores:
    """Scores of every kept input if `annotations` is a function, else those in the frame."""
    if isinstance(annotations, pd.DataFrame):
        scores = scores_from_frame(annotations, len(dist.log_density))
        _check_run(dist, annotations, scores)
    elif callable(annotations):
        scores = scores_from_judge(dist, annotations)
    else:
        raise InputError(
            "expected annotations as a function of inputs or a DataFrame with columns bin, score and "
            f"annotator, got {type(annotations).__name__}; read a file with assay.read_annotations"
        )
    blocks = dist.kept.blocks
    if blocks is None or (scores.item_rows < 0).any():
        return scores
    return replace(scores, item_blocks=blocks[scores.item_rows])


def scores_from_judge(dist: OutputDistribution, judge: Judge) -> Scores:
    """Every distinct kept input, weighted by its share of the bin, scored by a function."""
    rows, weights = distinct_inputs(dist)
    parts = torch.split(dist.kept.inputs[torch.from_numpy(rows)], ROWS_AT_A_TIME)
    found = [_scores_by(judge, part) for part in parts]
    scores = np.concatenate(found) if found else np.empty(0)
    _check_range(scores)
    count = np.arange(len(rows))
    return Scores(dist.kept.bins[rows], weights, rows, count, np.zeros_like(count), scores, (JUDGE,))


def distinct_inputs(dist: OutputDistribution) -> tuple[Integers, Array]:
    """The first row of each distinct kept input, and the total weight of its rows relative to the bin's
    largest."""
    inputs, bins, log_weights = dist.kept.inputs, dist.kept.bins, dist.kept.log_weights
    if not len(bins):
        return np.empty(0, dtype=np.int64), np.empty(0)
    top = np.full(bins.max() + 1, -np.inf)
    np.maximum.at(top, bins, log_weights)
    _, rows, owner = np.unique(inputs.flatten(1).numpy(), axis=0, return_index=True, return_inverse=True)
    weights = np.bincount(owner.ravel(), weights=np.exp(log_weights - top[bins])).astype(np.float64)
    order = np.argsort(rows)
    return rows[order].astype(np.int64), weights[order]


def _scores_by(judge: Judge, inputs: Tensor) -> Array:
    result = judge(inputs)
    scores = result.detach().cpu().numpy() if isinstance(result, Tensor) else np.asarray(result)
    if scores.shape != (len(inputs),) or scores.dtype.kind not in "biuf":
        raise InputError(
            f"expected one score per input, shape ({len(inputs)},), from the judge, got {scores.dtype} of "
            f"shape {scores.shape}; return a number from 0 to 1 for every input of the batch"
        )
    return scores.astype(np.float64)


def scores_from_frame(frame: pd.DataFrame, bins: int) -> Scores:
    """Scores from a frame with a row per label; skipped labels (no score) and hidden repeats do not count.

    The columns bin and score are required. Optional ones: annotator (who), item (labels with the same item
    are about the same input; without it, each label is about a different one), weight (of the input in its
    bin), row (of the input among the distribution's kept inputs), run (the name of the distribution) and
    reviewed (the answer that counts for its item, instead of the others).
    """
    _check_columns(frame)
    rows = counted(frame)
    rows = rows[rows["score"].notna()]
    if "repeat" in rows:
        rows = rows[rows["repeat"] == 0]
    if rows.empty:
        raise InputError("expected at least one annotation with a score, got none; annotate some inputs")
    scores = _numbers(rows, "score")
    _check_range(scores)
    row_bins = _bins(rows, bins)
    names = rows["annotator"].astype(str) if "annotator" in rows else pd.Series(JUDGE, index=rows.index)
    annotators, people = np.unique(names.to_numpy(), return_inverse=True)
    keys = rows["item"].astype(str).to_numpy() if "item" in rows else np.arange(len(rows))
    _, first, items = np.unique(keys, return_index=True, return_inverse=True)
    _check_one_bin(row_bins, items, first)
    weights = _numbers(rows, "weight")[first] if "weight" in rows else np.ones(len(first))
    if not (np.isfinite(weights) & (weights > 0)).all():
        raise InputError(
            f"expected positive weights, got {weights.min():.4g}; leave the column out for equal ones"
        )
    kept = _numbers(rows, "row")[first].astype(np.int64) if "row" in rows else np.full(len(first), -1)
    return Scores(row_bins[first], weights, kept, items, people, scores, tuple(map(str, annotators)))


def runs_in(frame: pd.DataFrame) -> set[str]:
    """The names of the distributions whose inputs were judged, as far as the labels say."""
    return set(frame["run"].dropna().astype(str)) if "run" in frame else set()


def _check_run(dist: OutputDistribution, frame: pd.DataFrame, scores: Scores) -> None:
    """Refuse labels of another distribution, by its name or, without one, by the bins of its inputs."""
    rows, bins = (column[scores.item_rows >= 0] for column in (scores.item_rows, scores.item_bins))
    there = (rows < len(dist.kept.bins)).all() and (dist.kept.bins[rows] == bins).all()
    if not there or runs_in(frame) - {run_name(dist)}:
        raise InputError(
            "expected labels of this distribution's inputs, got labels of another run; pass the distribution "
            "whose inputs were judged"
        )


def _check_columns(frame: pd.DataFrame) -> None:
    missing = [name for name in ("bin", "score") if name not in frame]
    if missing:
        raise InputError(
            f"expected annotations with columns bin, score and annotator, got {', '.join(map(str, frame))}; "
            f"add {' and '.join(missing)}"
        )


def _numbers(rows: pd.DataFrame, column: str) -> Array:
    found = pd.to_numeric(rows[column], errors="coerce").to_numpy(dtype=np.float64)
    if np.isnan(found).any():
        bad = rows[column].iloc[int(np.isnan(found).argmax())]
        raise InputError(f"expected numbers in the column {column}, got {bad!r}; correct that row")
    return found


def _check_range(scores: Array) -> None:
    outside = ~((scores >= 0) & (scores <= 1))
    if outside.any():
        raise InputError(
            f"expected scores from 0 (wrong) to 1 (right), got {scores[outside][0]:.4g} in row "
            f"{int(outside.argmax())}; rescale or correct them"
        )


def _bins(rows: pd.DataFrame, bins: int) -> Integers:
    found = _numbers(rows, "bin")
    wrong = (found != np.floor(found)) | (found < 0) | (found >= bins)
    if wrong.any():
        raise InputError(
            f"expected bins from 0 to {bins - 1}, those of the distribution, got {found[wrong][0]:g}; "
            "annotate inputs of this distribution"
        )
    return found.astype(np.int64)


def _check_one_bin(bins: Integers, items: Integers, first: Integers) -> None:
    apart = bins != bins[first][items]
    if apart.any():
        raise InputError(
            f"expected every item in one bin, got one in bins {bins[first][items][apart][0]} and "
            f"{bins[apart][0]}; use a different item for every input"
        )
