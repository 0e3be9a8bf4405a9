"""One call, one table: the accuracy in operation by every method there is."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from assay.accuracy.counts import PredictionCounts
from assay.accuracy.logit_noise import noisy
from assay.accuracy.methods.agreement import Agreement
from assay.accuracy.methods.calibrated_confidence import CalibratedConfidence
from assay.accuracy.methods.confidence import (
    AverageConfidence,
    DifferenceOfConfidences,
    ReferenceAccuracy,
)
from assay.accuracy.methods.label_shift import LabelShift
from assay.accuracy.methods.method import Method
from assay.accuracy.methods.signal import CalibratedVolatility, NuclearNorm
from assay.accuracy.methods.threshold import ThresholdedConfidence, ThresholdedEntropy
from assay.accuracy.predictions import Labelled, Predictions
from assay.accuracy.result import AccuracyEstimate, AccuracyEstimates
from assay.errors import InputError
from assay.storage import fingerprint_of, storable
from assay.trace import Trace
from assay.volatility.certainty import FEWEST

ROW_METHODS = (
    ReferenceAccuracy,
    AverageConfidence,
    DifferenceOfConfidences,
    ThresholdedConfidence,
    ThresholdedEntropy,
    CalibratedConfidence,
    LabelShift,
)
FEWEST_REFERENCE_ROWS = 20


def estimate_accuracy(
    reference: Trace,
    operational: Any,
    *,
    perturbed: Iterable[Trace] = (),
    other: tuple[Any, Any] | None = None,
    window: int | None = None,
    level: float = 0.95,
    seed: int = 0,
) -> AccuracyEstimates:
    """The accuracy on operational predictions without labels, by every method, with interval and assumption.

    `reference`: a labelled Trace of data the network was not trained on. `operational`: a Trace, or
    probabilities. `perturbed`: labelled Traces of the reference inputs under perturbations one expects, at
    several strengths (see assay.faults); they teach what log VC and nuclear norm mean, and without them
    noise on the logits stands in. `other`: Traces of a second network on the same reference and operational
    rows. `window`: rows per log VC.

    Sums over rows and, for log VC, sorting within windows; nothing of size N x N.
    """
    predictions = Predictions.of(operational, None if other is None else other[1])
    window = window or min(1000, len(reference), len(predictions))
    estimator = AccuracyEstimator.fit(
        reference, perturbed, other=None if other is None else other[0], window=window, seed=seed
    )
    return estimator.estimate(estimator._counted(predictions), level)


@storable("accuracy.AccuracyEstimator")
@dataclass(frozen=True, eq=False)
class AccuracyEstimator:
    """Every method, fitted on the reference; it needs nothing but sums of operational predictions.

    Save it, send it to the devices, let each `count` there, add the counts, `estimate` here. All methods work
    so. The log VC alone loses by it: each device counts whole windows and drops what is left over.
    """

    methods: list[Method]
    reference_accuracy: float
    classes: int

    @classmethod
    def fit(
        cls,
        reference: Trace,
        perturbed: Iterable[Trace] = (),
        *,
        other: Any = None,
        window: int = 1000,
        seed: int = 0,
    ) -> Self:
        labelled = Labelled.of(reference, other)
        if len(labelled) < max(FEWEST_REFERENCE_ROWS, window):
            raise InputError(
                f"expected a reference of at least {max(FEWEST_REFERENCE_ROWS, window)} rows (one window), "
                f"got {len(labelled)}; pass more labelled rows or a smaller window"
            )
        methods: list[Method] = [method.fit(labelled) for method in ROW_METHODS]
        shifted = [Labelled.of(trace) for trace in (list(perturbed) or noisy(reference, seed))]
        if any(len(one) < window for one in shifted):
            raise InputError(f"expected perturbed Traces of at least one window ({window} rows)")
        sets, size = [labelled, *shifted], np.array([float(window)])
        methods.append(NuclearNorm.fit(sets, size))
        if window >= FEWEST:
            methods.append(CalibratedVolatility.fit(sets, size))
        if other is not None:
            methods.append(Agreement.fit(labelled))
        return cls(methods, float(labelled.correct.mean()), reference.logits.shape[1])

    def count(self, operational: Any, other: Any = None) -> PredictionCounts:
        """Sums over operational predictions, a Trace or probabilities; may run where the data is."""
        return self._counted(Predictions.of(operational, other))

    def estimate(self, counts: PredictionCounts, level: float = 0.95) -> AccuracyEstimates:
        """Every method's estimate with its `level` interval."""
        if not 0 < level < 1:
            raise InputError(f"expected a level between 0 and 1, got {level}")
        if counts.estimator != self.fingerprint:
            raise InputError("expected counts made by this estimator, got counts of another one")
        estimates = [
            AccuracyEstimate(
                method.name,
                *method.interval(counts.sums[method.name], counts.rows, level),
                method.assumption,
                method.counted,
            )
            for method in self.methods
        ]
        return AccuracyEstimates(estimates, self.reference_accuracy, counts.rows, level)

    @property
    def fingerprint(self) -> str:
        """A hash of all that was fitted."""
        return fingerprint_of(self)

    def _counted(self, predictions: Predictions) -> PredictionCounts:
        if (found := predictions.probabilities.shape[1]) != self.classes:
            raise InputError(
                f"expected predictions over {self.classes} classes as on the reference, got {found}; "
                "pass predictions of the same network"
            )
        sums: Mapping[str, Any] = {method.name: method.sums(predictions) for method in self.methods}
        return PredictionCounts(sums, len(predictions), self.fingerprint)
