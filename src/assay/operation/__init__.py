"""A guard in operation: counts, watches, and a file that keeps both."""

from assay.operation.drift import DriftState, DriftWatch
from assay.operation.watch import Watch, WatchState
from assay.operation.watch_record import WatchRecord

__all__ = ["DriftState", "DriftWatch", "Watch", "WatchRecord", "WatchState"]
