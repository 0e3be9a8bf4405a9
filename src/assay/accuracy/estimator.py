"""The accuracy in operation, by every method."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, Self

from assay.accuracy.counts import PredictionCounts
from assay.accuracy.logit_noise import noisy
from assay.accuracy.methods import METHODS, Method
from assay.accuracy.predictions import (
    AccuracyReference,
    LabelledPredictions,
    Predictions,
    expect_same_classes,
    labelled_trace,
)
from assay.accuracy.result import AccuracyEstimate, AccuracyEstimates
from assay.errors import InputError, NotFittedError
from assay.statistics import check_level
from assay.storage import fingerprint_of, storable
from assay.volatility.certainty import Doubles

FEWEST_REFERENCE_ROWS = 20
LONGEST_WINDOW = 1000
"""Rows per log VC by default, if there are that many."""
_NOT_ADDITIVE = "needs all rows at once: use estimate_accuracy"


def estimate_accuracy(
    reference: Any,
    operational: Any,
    *,
    perturbed: Iterable[Any] = (),
    other: tuple[Any, Any] | None = None,
    window: int | None = None,
    level: float = 0.95,
    seed: int = 0,
) -> AccuracyEstimates:
    """The accuracy on operational predictions without labels, by every method, with interval and assumption.

    `reference`: data the network was not trained on, as a labelled Trace or as (probabilities, labels).
    `operational`: a Trace, or probabilities. `perturbed`: the same of the reference inputs under the
    perturbations you expect, at several strengths (see assay.faults); they teach what log VC and nuclear norm
    mean, and without them noise on the logits stands in. `other`: Traces of a second network on the same
    reference and operational rows. `window`: rows per log VC (default: 1,000, or all rows if there are
    fewer).

    Sums over rows and, for log VC, sorting within windows; nothing of size N x N.
    """
    expect_same_classes(reference, operational)
    reference = labelled_trace(reference)
    predictions = Predictions.of(operational, None if other is None else other[1])
    window = window or min(LONGEST_WINDOW, len(reference), len(predictions))
    estimator = AccuracyEstimator(window=window, seed=seed)
    known = estimator._known(reference, perturbed, None if other is None else other[0])
    estimator._learn(known)
    at_once = [method().fit(known) for method in METHODS if not method.additive and method.applies(known)]
    return estimator.estimate(estimator._counts_of(predictions, at_once), level)


@storable("accuracy.AccuracyEstimator")
class AccuracyEstimator:
    """Every method, fitted on the reference; after that it needs only sums of operational predictions.

    Save it and send it to the devices; let each `count`, add the counts, and `estimate` from the sum. Log VC
    and optimal transport are counted over windows, so a device drops the rows left over; importance weighting
    needs all rows at once and is left out.

    `window`: rows per log VC (default: 1,000, or the whole reference if it is shorter). `seed`: for the noise
    on the logits that stands in for perturbed Traces.
    """

    def __init__(self, *, window: int | None = None, seed: int = 0) -> None:
        self.window = window
        self.seed = seed
        self.methods_: list[Method] = []
        self.reference_accuracy_ = float("nan")
        self.classes_ = 0

    def fit(self, reference: Any, perturbed: Iterable[Any] = (), other: Any = None) -> Self:
        """Fit every method that applies: on a labelled Trace, perturbed versions of it, other networks'.

        Instead of a Trace, (probabilities, labels) will do. Methods that need all rows at once hold the rows
        of the reference; they are left to `estimate_accuracy`, so that an estimator has no row in it.
        """
        self._learn(self._known(reference, perturbed, other))
        return self

    def _known(self, reference: Any, perturbed: Iterable[Any], other: Any) -> AccuracyReference:
        reference = labelled_trace(reference)
        labelled = LabelledPredictions.of(reference, other)
        window = self.window or min(LONGEST_WINDOW, len(labelled))
        if len(labelled) < max(FEWEST_REFERENCE_ROWS, window):
            raise InputError(
                f"expected a reference of at least {max(FEWEST_REFERENCE_ROWS, window)} rows (one window), "
                f"got {len(labelled)}; pass more labelled rows or a smaller window"
            )
        versions = [labelled_trace(one) for one in perturbed] or noisy(reference, self.seed)
        taught = [LabelledPredictions.of(trace) for trace in versions]
        if any(len(one) < window for one in taught):
            raise InputError(
                f"expected perturbed Traces of at least one window ({window} rows), got "
                f"{min(map(len, taught))}; pass longer ones or a smaller window"
            )
        return AccuracyReference(labelled, taught, window)

    def _learn(self, known: AccuracyReference) -> None:
        self.methods_ = [
            method().fit(known) for method in METHODS if method.additive and method.applies(known)
        ]
        self.reference_accuracy_ = float(known.labelled.correct.mean())
        self.classes_ = known.labelled.predictions.probabilities.shape[1]

    def count(self, operational: Any, other: Any = None) -> PredictionCounts:
        """Sums over operational predictions, a Trace or probabilities; may run where the data is."""
        return self._counts_of(Predictions.of(operational, other))

    def estimate(self, counts: PredictionCounts, level: float = 0.95) -> AccuracyEstimates:
        """Every method's estimate with its `level` interval."""
        self.expect_fitted()
        check_level(level)
        if counts.estimator != self.fingerprint:
            raise InputError(
                "expected counts made by this estimator, got counts of another one; send one saved estimator "
                "to all devices"
            )
        at_once = [method() for method in METHODS if not method.additive]
        estimates = [_estimate(method, counts, level) for method in (*self.methods_, *at_once)]
        return AccuracyEstimates(estimates, self.reference_accuracy_, counts.rows, level)

    @property
    def fingerprint(self) -> str:
        """A hash of everything that was fitted."""
        return fingerprint_of(self)

    def state(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        estimator = cls(window=state["window"], seed=state["seed"])
        vars(estimator).update(state)
        return estimator

    def expect_fitted(self) -> None:
        """Raise an error unless `fit` was called."""
        if not self.methods_:
            raise NotFittedError(
                "expected a fitted AccuracyEstimator, got an unfitted one; call fit(reference) first"
            )

    def _counts_of(self, predictions: Predictions, at_once: Iterable[Method] = ()) -> PredictionCounts:
        """`at_once`: methods whose sums do not add up, to be asked where these are all rows."""
        self.expect_fitted()
        if (found := predictions.probabilities.shape[1]) != self.classes_:
            raise InputError(
                f"expected predictions over {self.classes_} classes as on the reference, got {found}; "
                "pass predictions of the same network"
            )
        sums: dict[str, Doubles] = {}
        left_out: dict[str, str] = {}
        for method in (*self.methods_, *at_once):
            if reason := method.obstacle(predictions):
                left_out[method.name] = reason
            elif method.sums_name not in sums:
                sums[method.sums_name] = method.sums(predictions)
        return PredictionCounts(sums, len(predictions), self.fingerprint, left_out)


def _estimate(method: Method, counts: PredictionCounts, level: float) -> AccuracyEstimate:
    """The method's estimate, or that it was left out and why."""
    sums = counts.sums.get(method.sums_name)
    if method.name in counts.left_out or sums is None:
        found, note = (math.nan, math.nan, math.nan), counts.left_out.get(method.name, _NOT_ADDITIVE)
    else:
        found, note = method.interval(sums, counts.rows, level), method.doubt(sums, counts.rows)
    return AccuracyEstimate(method.name, *found, method.assumption, method.counted, note)
