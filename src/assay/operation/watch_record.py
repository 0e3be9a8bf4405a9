"""WatchRecord: the counts of a watched guard, as one file."""

import time
from dataclasses import dataclass, field

from assay.accuracy.counts import PredictionCounts
from assay.operation.accuracy_history import AccuracyHistory
from assay.operation.drift import DriftWatch
from assay.reshaping.histogram import Histogram
from assay.storage import storable
from assay.volatility.watch import VolatilityWatch


@storable("operation.WatchRecord")
@dataclass(frozen=True, eq=False)
class WatchRecord:
    """Counts and watches of one guard, identified by its fingerprint; no input and no row of features."""

    guard: str
    predictions: int
    cancelled: int
    uncounted: int
    histogram: Histogram | None = None
    volatility: VolatilityWatch | None = None
    drift: DriftWatch | None = None
    counts: PredictionCounts | None = None
    history: AccuracyHistory | None = None
    written: float = field(default_factory=time.time)
    """Seconds since 1970."""
    stream: str = ""
    """What all files of one stream have in common, and no other: so that no device is counted twice."""
