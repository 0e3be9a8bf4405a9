"""Every way to doubt a prediction, one per file; the contract is in `monitor.py`."""

from assay.monitors.activation_box import ActivationBox
from assay.monitors.activation_pattern import ActivationPattern
from assay.monitors.adapter import adapt
from assay.monitors.allowed_classes import AllowedClasses
from assay.monitors.combination import AllOf, AnyOf, Standardized
from assay.monitors.ensemble_disagreement import EnsembleDisagreement
from assay.monitors.gaussian_interval import GaussianInterval
from assay.monitors.input_range import InputRange
from assay.monitors.max_softmax import MaxSoftmax
from assay.monitors.monitor import Monitor
from assay.monitors.monte_carlo_dropout import MonteCarloDropout
from assay.monitors.reconstruction import Reconstruction
from assay.monitors.rule import Rule
from assay.monitors.temperature_scaled import TemperatureScaled

__all__ = [
    "ActivationBox",
    "ActivationPattern",
    "AllOf",
    "AllowedClasses",
    "AnyOf",
    "EnsembleDisagreement",
    "GaussianInterval",
    "InputRange",
    "MaxSoftmax",
    "Monitor",
    "MonteCarloDropout",
    "Reconstruction",
    "Rule",
    "Standardized",
    "TemperatureScaled",
    "adapt",
]
