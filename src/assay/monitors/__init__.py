"""Every way to doubt a prediction, one per file; the contract is in `monitor.py`."""

from assay.monitors.max_softmax import MaxSoftmax
from assay.monitors.monitor import Monitor

__all__ = ["MaxSoftmax", "Monitor"]
