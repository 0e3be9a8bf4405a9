"""A guard in operation: counts, watches, and a file that keeps both."""

from assay.operation.accuracy_history import AccuracyHistory
from assay.operation.accuracy_windows import AccuracyWindows
from assay.operation.drift import DriftState, DriftWatch
from assay.operation.opentelemetry import watch_with_opentelemetry
from assay.operation.watch import Watch, WatchState
from assay.operation.watch_record import WatchRecord

__all__ = [
    "AccuracyHistory",
    "AccuracyWindows",
    "DriftState",
    "DriftWatch",
    "Watch",
    "WatchRecord",
    "WatchState",
    "watch_with_opentelemetry",
]
