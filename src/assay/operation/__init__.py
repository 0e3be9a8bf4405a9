"""A guard at work: what it has seen is counted, watched and kept."""

from assay.operation.counted import WatchRecord
from assay.operation.drift import DriftState, DriftWatch
from assay.operation.watch import Watch, WatchState

__all__ = ["DriftState", "DriftWatch", "Watch", "WatchRecord", "WatchState"]
