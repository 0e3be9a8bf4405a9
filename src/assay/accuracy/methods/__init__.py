"""Ways to estimate accuracy without labels, one family per file."""

from assay.accuracy.methods.agreement import Agreement
from assay.accuracy.methods.calibrated_confidence import CalibratedConfidence
from assay.accuracy.methods.confidence import (
    AverageConfidence,
    DifferenceOfConfidences,
    ReferenceAccuracy,
)
from assay.accuracy.methods.label_shift import LabelShift
from assay.accuracy.methods.signal import CalibratedVolatility, NuclearNorm
from assay.accuracy.methods.threshold import ThresholdedConfidence, ThresholdedEntropy

__all__ = [
    "Agreement",
    "AverageConfidence",
    "CalibratedConfidence",
    "CalibratedVolatility",
    "DifferenceOfConfidences",
    "LabelShift",
    "NuclearNorm",
    "ReferenceAccuracy",
    "ThresholdedConfidence",
    "ThresholdedEntropy",
]
