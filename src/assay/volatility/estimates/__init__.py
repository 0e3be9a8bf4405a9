"""Ways to estimate accuracy without labels, one family per file."""

from assay.volatility.estimates.agreement import Agreement
from assay.volatility.estimates.calibration import CalibratedConfidence
from assay.volatility.estimates.confidence import (
    AverageConfidence,
    DifferenceOfConfidences,
    ReferenceAccuracy,
)
from assay.volatility.estimates.label_shift import LabelShift
from assay.volatility.estimates.signal import CalibratedVolatility, NuclearNorm
from assay.volatility.estimates.threshold import ThresholdedConfidence, ThresholdedEntropy

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
