"""A guard in operation: what it sees is counted, watched and kept."""

from assay.operation.drift import DriftState, DriftWatch
from assay.operation.watch import Watch, WatchState
from assay.operation.watch_record import WatchRecord

__all__ = ["DriftState", "DriftWatch", "Watch", "WatchRecord", "WatchState"]
