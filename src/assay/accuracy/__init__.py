"""Accuracy without labels: every method's estimate, one method per file, and the counts a device sends.

This package is also the indicator of the same name, so that `result.estimate(assay.accuracy)` and
`assay.accuracy(labels, predictions)` work: it has the indicator's `name` and `parts`, and can be called.
"""

import sys
from types import ModuleType
from typing import Any

from assay.accuracy.companions import companions
from assay.accuracy.counts import PredictionCounts
from assay.accuracy.estimator import AccuracyEstimator, estimate_accuracy
from assay.accuracy.result import AccuracyEstimate, AccuracyEstimates
from assay.reshaping.indicator import accuracy as _indicator

__all__ = [
    "AccuracyEstimate",
    "AccuracyEstimates",
    "AccuracyEstimator",
    "PredictionCounts",
    "companions",
    "estimate_accuracy",
    "name",
    "parts",
]

name = _indicator.name
parts = _indicator.parts


class _CallableModule(ModuleType):
    def __call__(self, labels: Any, predictions: Any) -> float:
        return _indicator(labels, predictions)


sys.modules[__name__].__class__ = _CallableModule
