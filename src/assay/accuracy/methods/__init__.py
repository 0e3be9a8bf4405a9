"""Ways to estimate accuracy without labels, one per file. A new one is a file and a line in METHODS."""

from assay.accuracy.methods.agreement_line_direct import AgreementLineDirect
from assay.accuracy.methods.agreement_line_simple import AgreementLineSimple
from assay.accuracy.methods.average_confidence import AverageConfidence
from assay.accuracy.methods.calibrated_confidence import CalibratedConfidence
from assay.accuracy.methods.calibrated_signal import CalibratedSignal
from assay.accuracy.methods.calibrated_volatility import CalibratedVolatility
from assay.accuracy.methods.difference_of_confidences import DifferenceOfConfidences
from assay.accuracy.methods.dispersion import Dispersion
from assay.accuracy.methods.energy_gap import EnergyGap
from assay.accuracy.methods.importance_weighting import ImportanceWeighting
from assay.accuracy.methods.label_shift import LabelShift
from assay.accuracy.methods.matrix_norm import MatrixNorm
from assay.accuracy.methods.method import Method
from assay.accuracy.methods.network_agreement import NetworkAgreement
from assay.accuracy.methods.nuclear_norm import NuclearNorm
from assay.accuracy.methods.reference_accuracy import ReferenceAccuracy
from assay.accuracy.methods.thresholded_confidence import ThresholdedConfidence
from assay.accuracy.methods.thresholded_entropy import ThresholdedEntropy
from assay.accuracy.methods.thresholded_transport import ThresholdedTransport
from assay.accuracy.methods.transported_confidence import TransportedConfidence
from assay.accuracy.methods.weighted_nuclear_norm import WeightedNuclearNorm

METHODS: tuple[type[Method], ...] = (
    ReferenceAccuracy,
    AverageConfidence,
    DifferenceOfConfidences,
    ThresholdedConfidence,
    ThresholdedEntropy,
    CalibratedConfidence,
    ImportanceWeighting,
    LabelShift,
    TransportedConfidence,
    ThresholdedTransport,
    NuclearNorm,
    WeightedNuclearNorm,
    MatrixNorm,
    EnergyGap,
    Dispersion,
    CalibratedVolatility,
    NetworkAgreement,
    AgreementLineSimple,
    AgreementLineDirect,
)
"""In the order of the table of estimates."""

__all__ = [
    "METHODS",
    "AgreementLineDirect",
    "AgreementLineSimple",
    "AverageConfidence",
    "CalibratedConfidence",
    "CalibratedSignal",
    "CalibratedVolatility",
    "DifferenceOfConfidences",
    "Dispersion",
    "EnergyGap",
    "ImportanceWeighting",
    "LabelShift",
    "MatrixNorm",
    "Method",
    "NetworkAgreement",
    "NuclearNorm",
    "ReferenceAccuracy",
    "ThresholdedConfidence",
    "ThresholdedEntropy",
    "ThresholdedTransport",
    "TransportedConfidence",
    "WeightedNuclearNorm",
]
