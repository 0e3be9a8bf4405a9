"""Every way to doubt a prediction, one per file; the contract is in `monitor.py`."""

from assay.monitors.activation_box import ActivationBox
from assay.monitors.activation_pattern import ActivationPattern
from assay.monitors.gaussian_interval import GaussianInterval
from assay.monitors.max_softmax import MaxSoftmax
from assay.monitors.monitor import Monitor

__all__ = ["ActivationBox", "ActivationPattern", "GaussianInterval", "MaxSoftmax", "Monitor"]
