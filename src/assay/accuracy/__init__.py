"""Accuracy without labels, or with a few: one answer, every method's estimate, and what a device counts.

This package is also the indicator of the same name, so that `result.estimate(assay.accuracy)` and
`assay.accuracy(labels, predictions)` work: it has the indicator's `name` and `parts`, and can be called.
"""

import sys
from types import ModuleType
from typing import Any

from assay.accuracy.counts import PredictionCounts
from assay.accuracy.counts_and_labels import accuracy_from_counts_and_labels
from assay.accuracy.estimator import AccuracyEstimator, estimate_accuracy
from assay.accuracy.few_labels import FewLabels
from assay.accuracy.headline import Headline
from assay.accuracy.label_draw import RowsToLabel, rows_to_label
from assay.accuracy.network_versions import companions
from assay.accuracy.prediction_powered import LabelledAccuracy, accuracy_from_labels
from assay.accuracy.result import AccuracyEstimate, AccuracyEstimates
from assay.reshaping.indicator import accuracy as _indicator

__all__ = [
    "AccuracyEstimate",
    "AccuracyEstimates",
    "AccuracyEstimator",
    "FewLabels",
    "Headline",
    "LabelledAccuracy",
    "PredictionCounts",
    "RowsToLabel",
    "accuracy_from_counts_and_labels",
    "accuracy_from_labels",
    "companions",
    "estimate_accuracy",
    "name",
    "parts",
    "rows_to_label",
]

name = _indicator.name
parts = _indicator.parts


class _CallableModule(ModuleType):
    def __call__(self, labels: Any, predictions: Any) -> float:
        return _indicator(labels, predictions)


sys.modules[__name__].__class__ = _CallableModule
