"""The measures of the benchmark, from counts of outcomes and from scores; all in double precision.

A measure that would divide by 0 (no positives, no alarms) is 0: MCC, precision, recall and the F1s as in
scikit-learn, and the rates too. The AUROC of a single class is NaN.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.benchmark.oracle import Flags, Outcome
from assay.statistics import (
    Auroc,
    auroc,
    percentile_interval,
    poisson_counts,
    resampled_counts,
    resampled_sums,
)

Numbers = NDArray[np.float64]

Sources = NDArray[np.int64]
"""The input that each row came from. Rows of one input are alike, so intervals draw inputs and not rows."""

COUNTED = ("mcc", "fpr", "fnr", "precision", "recall", "f1", "micro_f1", "weighted_f1")
"""Measures of counts."""


def outcome_counts(outcomes: NDArray[np.int8]) -> Numbers:
    """(4,) counts, in the order of `Outcome`."""
    return np.bincount(outcomes, minlength=len(Outcome)).astype(np.float64)


def counts_by_input(codes: NDArray[Any], kinds: int, sources: Sources) -> Numbers:
    """(inputs, kinds): how many of an input's rows are of each kind."""
    inputs = int(sources.max(initial=-1)) + 1
    counts = np.bincount(sources * kinds + codes, minlength=inputs * kinds).reshape(inputs, kinds)
    return counts[counts.any(axis=1)].astype(np.float64)


def counted_measures(counts: Numbers) -> dict[str, Numbers]:
    """Every measure of `COUNTED` for counts (..., 4) in the order of `Outcome`.

    `f1` is the harmonic mean of precision and recall. `micro_f1` pools both classes, which makes it the share
    of right reactions. `weighted_f1` is the mean of both classes' F1, weighted by their size: these are the
    figures that the paper calls micro-F1 (its Table II, second row: 0.52; precision and recall give 0.38).
    """
    tp, fp, tn, fn = np.moveaxis(np.asarray(counts, dtype=np.float64), -1, 0)
    covariance = tp * tn - fp * fn
    # Square roots one by one: the product of four counts overflows nothing, but loses digits.
    spread = np.sqrt(tp + fp) * np.sqrt(tp + fn) * np.sqrt(tn + fp) * np.sqrt(tn + fn)
    f1 = _ratio(2 * tp, 2 * tp + fp + fn)
    total = tp + fp + tn + fn
    quiet = _ratio(2 * tn, 2 * tn + fp + fn)
    return {
        "mcc": _ratio(covariance, spread),
        "fpr": _ratio(fp, fp + tn),
        "fnr": _ratio(fn, fn + tp),
        "precision": _ratio(tp, tp + fp),
        "recall": _ratio(tp, tp + fn),
        "f1": f1,
        "micro_f1": _ratio(tp + tn, total),
        "weighted_f1": _ratio((tp + fn) * f1 + (tn + fp) * quiet, total),
    }


def mcc_slopes(counts: Numbers) -> Numbers:
    """(4,): what one more row of each `Outcome` adds to MCC, with half a row of each added to the counts.

    The half rows keep an outcome that never occurred from counting as impossible.
    """
    tp, fp, tn, fn = np.asarray(counts, dtype=np.float64) + 0.5
    raised, silent, faults, clean = tp + fp, tn + fn, tp + fn, tn + fp
    spread = np.sqrt(raised * silent) * np.sqrt(faults * clean)
    half = (tp * tn - fp * fn) / spread / 2
    return np.array(
        [
            tn / spread - half * (1 / raised + 1 / faults),
            -fn / spread - half * (1 / raised + 1 / clean),
            tp / spread - half * (1 / silent + 1 / clean),
            -fp / spread - half * (1 / silent + 1 / faults),
        ]
    )


def bootstrap_intervals(
    counts: Numbers, level: float, resamples: int, seed: int
) -> dict[str, tuple[float, float]]:
    """Percentile intervals of every counted measure: over rows, from counts (4,), or over inputs, from
    counts (inputs, 4)."""
    draw = resampled_counts if counts.ndim == 1 else resampled_sums
    values = counted_measures(draw(counts, resamples, seed))
    return {name: percentile_interval(draws, level) for name, draws in values.items()}


def score_auroc(truth: Flags, scores: Numbers, level: float, sources: Sources | None = None) -> Auroc:
    """AUROC of the scores; one that is not finite is an alarm and so ranks above all others."""
    positives, negatives = _split(truth, scores)
    origins = None if sources is None else (sources[~truth], sources[truth])
    return auroc(negatives, positives, level, sources=origins)


def fpr_at_tpr(truth: Flags, scores: Numbers, tpr: float = 0.95) -> float:
    """The false positive rate at the highest threshold that catches at least `tpr` of the positives."""
    positives, negatives = _split(truth, scores)
    if not len(positives) or not len(negatives):
        return float("nan")
    needed = int(np.ceil(tpr * len(positives) - 1e-9))
    threshold = np.sort(positives)[len(positives) - needed]
    return float((negatives >= threshold).mean())


def multiclass_mcc(labels: NDArray[Any], answers: NDArray[Any]) -> float:
    """Matthews correlation of many classes (Gorodkin 2004); 0 where either side has one class only.

    A cancelled prediction is an answer of its own, -1, which is also the label of a novelty.
    """
    pairs, counts = _pair_counts(labels, answers)
    return float(_mcc_of_counts(pairs, counts[None])[0])


def multiclass_mcc_interval(
    labels: NDArray[Any], answers: NDArray[Any], settings: Mapping[str, Any]
) -> tuple[float, float]:
    """The percentile interval of `multiclass_mcc`, by resampling the counts of (label, answer) pairs."""
    return _mcc_interval(*_pair_counts(labels, answers), settings)


def answer_mcc(
    name: str,
    labels: NDArray[Any],
    answers: NDArray[Any],
    settings: Mapping[str, Any],
    sources: Sources | None = None,
) -> dict[str, float]:
    """`multiclass_mcc` under this name, with `_lower` and `_upper` beside it."""
    pairs, codes, counts = _pair_codes(labels, answers)
    by_input = counts if sources is None else counts_by_input(codes, len(counts), sources)
    lower, upper = _mcc_interval(pairs, by_input, settings)
    return {
        name: float(_mcc_of_counts(pairs, counts[None])[0]),
        f"{name}_lower": lower,
        f"{name}_upper": upper,
    }


def _mcc_interval(
    pairs: NDArray[np.intp], counts: Numbers, settings: Mapping[str, Any]
) -> tuple[float, float]:
    if not counts.size:
        return float("nan"), float("nan")
    draw = poisson_counts if counts.ndim == 1 else resampled_sums
    draws = draw(counts, settings["resamples"], settings["seed"])
    return percentile_interval(_mcc_of_counts(pairs, draws), settings["level"])


def _pair_counts(labels: NDArray[Any], answers: NDArray[Any]) -> tuple[NDArray[np.intp], Numbers]:
    """The distinct pairs of label and answer as codes (pairs, 2), and how often each occurred."""
    pairs, _, counts = _pair_codes(labels, answers)
    return pairs, counts


def _pair_codes(
    labels: NDArray[Any], answers: NDArray[Any]
) -> tuple[NDArray[np.intp], NDArray[np.intp], Numbers]:
    """The same, with the pair of every row between them."""
    classes, codes = np.unique(np.concatenate([labels, answers]), return_inverse=True)
    count, size = len(labels), max(1, len(classes))
    cells, own, counts = np.unique(
        codes[:count] * size + codes[count:], return_inverse=True, return_counts=True
    )
    return np.stack(np.divmod(cells, size), axis=1), own, counts.astype(np.float64)


def _mcc_of_counts(pairs: NDArray[np.intp], counts: NDArray[Any]) -> Numbers:
    """MCC for every row of `counts` (draws, pairs)."""
    classes = np.eye(int(pairs.max(initial=0)) + 1)
    counts = np.asarray(counts, dtype=np.float64)
    total = counts.sum(axis=1)
    right = counts[:, pairs[:, 0] == pairs[:, 1]].sum(axis=1)
    truth, answers = counts @ classes[pairs[:, 0]], counts @ classes[pairs[:, 1]]
    covariance = right * total - (truth * answers).sum(axis=1)
    spread = np.sqrt(total**2 - (answers**2).sum(axis=1)) * np.sqrt(total**2 - (truth**2).sum(axis=1))
    return _ratio(covariance, spread)


def all_measures(
    prefix: str,
    truth: Flags,
    outcomes: NDArray[np.int8],
    scores: Numbers,
    settings: Mapping[str, Any],
    sources: Sources | None = None,
) -> dict[str, float]:
    """Every measure of one dimension, with `_lower` and `_upper` beside those that have an interval.

    `sources` are given where an input has several rows.
    """
    counts = outcome_counts(outcomes)
    by_input = counts if sources is None else counts_by_input(outcomes, len(Outcome), sources)
    intervals = bootstrap_intervals(by_input, settings["level"], settings["resamples"], settings["seed"])
    estimates = {
        name: (float(value), *intervals[name]) for name, value in counted_measures(counts).items()
    } | {"auroc": score_auroc(truth, scores, settings["level"], sources)}
    values: dict[str, float] = {}
    for name, (value, lower, upper) in estimates.items():
        column = f"{prefix}_{name}"
        values |= {column: value, f"{column}_lower": lower, f"{column}_upper": upper}
    values[f"{prefix}_fpr95"] = fpr_at_tpr(truth, scores)
    names = ("true_positives", "false_positives", "true_negatives", "false_negatives")
    return values | {f"{prefix}_{name}": float(count) for name, count in zip(names, counts, strict=True)}


def _ratio(top: Numbers, bottom: Numbers) -> Numbers:
    return np.divide(top, bottom, out=np.zeros_like(top), where=bottom > 0)


def _split(truth: Flags, scores: Numbers) -> tuple[Numbers, Numbers]:
    ranked = np.where(np.isfinite(scores), scores, np.inf)
    return ranked[truth], ranked[~truth]
