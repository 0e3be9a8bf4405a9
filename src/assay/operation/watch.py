"""Watch: a guard that counts what it sees, for people with a service of their own and for assay's."""

import copy
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.accuracy.counts import PredictionCounts
from assay.accuracy.estimator import AccuracyEstimator
from assay.accuracy.result import AccuracyEstimates
from assay.errors import InputError
from assay.guard import Answer, AnyGuard, Verdict
from assay.operation.counted import WatchRecord
from assay.operation.drift import DriftState, DriftWatch
from assay.reshaping.bins import Bins
from assay.reshaping.histogram import Histogram
from assay.storage import load, save
from assay.trace import Trace
from assay.volatility.watch import VolatilityState, VolatilityWatch

HELD = 256
"""Rows held back and counted together: counting one row costs nearly what counting 256 does."""

ESTIMATED = 1000
"""Rows per estimate of accuracy, where no volatility watch says how long a window is."""


@dataclass(frozen=True)
class WatchState:
    """What a watched guard has seen so far."""

    predictions: int
    cancelled: int
    """Predictions on which the guard raised the alarm."""
    uncounted: int
    """Rows that no bin has a place for: not finite, or outside bins without overflow."""
    volatility: VolatilityState | None
    drift: DriftState | None
    estimates: AccuracyEstimates | None
    """Of the last full window; None before there was one, and without an estimator."""


class Watch:
    """`watched(inputs)` is `guard(inputs)`, and what was seen is counted: any number of threads may call it.

    histogram: `Bins` to count features in, or a `Histogram` to go on with. volatility: a calibrated
    `VolatilityWatch`. drift: a calibrated `DriftWatch`. estimator: a fitted `AccuracyEstimator`, asked again
    after every window. Each may be left out. All of them are the watch's own from now on.

    A call costs the guard and a few microseconds; rows are counted 256 at a time, or when somebody asks for
    `state`, `histogram` or `keep`. The forward pass of one thread does not wait for that of another.
    """

    def __init__(
        self,
        guard: AnyGuard,
        histogram: Histogram | Bins | None = None,
        volatility: VolatilityWatch | None = None,
        *,
        drift: DriftWatch | None = None,
        estimator: AccuracyEstimator | None = None,
    ) -> None:
        if not isinstance(guard, AnyGuard):
            raise InputError(f"expected a Guard or an OnnxGuard to watch, got {type(guard).__name__}")
        guard.decided_threshold()
        self.guard = guard
        self.bins = histogram.bins if isinstance(histogram, Histogram) else histogram
        if self.bins is not None:
            _check_bins(guard, self.bins)
        self.volatility = volatility
        self.drift = drift
        self.estimator = estimator
        self.window = ESTIMATED if volatility is None else volatility.window
        self._histogram = histogram if isinstance(histogram, Histogram) else None
        self._counts: PredictionCounts | None = None
        self._volatility_state = None if volatility is None else volatility.update(_no_rows(volatility))
        self._drift_state = None if drift is None else drift.update(np.zeros(0, bool), volatility)
        self._estimates: AccuracyEstimates | None = None
        self._predictions = self._cancelled = self._uncounted = 0
        self._held: list[tuple[Trace, Tensor]] = []
        self._held_rows = 0
        self._for_estimate: list[Tensor] = []
        self._lock = threading.Lock()

    def __call__(self, inputs: Any) -> Verdict:
        return self.answer(inputs).verdict

    def answer(self, inputs: Any) -> Answer:
        """Judge and count; with the Trace and the seconds, for those who show them."""
        answer = self.guard.answer(inputs)
        layers = () if self.bins is None else self.bins.layers
        seen = Trace(answer.trace.logits, {layer: answer.trace.layer(layer) for layer in layers})
        cancelled = int(answer.verdict.alarm.sum())
        with self._lock:
            self._predictions += len(seen)
            self._cancelled += cancelled
            self._held.append((seen, answer.verdict.alarm))
            self._held_rows += len(seen)
            if self._held_rows >= HELD:
                self._count()
        return answer

    @property
    def state(self) -> WatchState:
        """Everything seen so far, counted."""
        with self._lock:
            self._count()
            return WatchState(
                self._predictions,
                self._cancelled,
                self._uncounted,
                self._volatility_state,
                self._drift_state,
                self._estimates,
            )

    @property
    def histogram(self) -> Histogram:
        """The features counted so far."""
        with self._lock:
            self._count()
            if self._histogram is None:
                raise InputError(
                    "expected a watch that has counted features, got one that has not; pass bins, "
                    "Watch(guard, bins), and let it see inputs"
                )
            return self._histogram

    def record(self) -> WatchRecord:
        """All of it as one object; a copy, which later calls do not change."""
        guard = self.guard.fingerprint  # before the lock: it looks at every weight
        with self._lock:
            self._count()
            return WatchRecord(
                guard,
                self._predictions,
                self._cancelled,
                self._uncounted,
                self._histogram,
                copy.deepcopy(self.volatility),
                copy.deepcopy(self.drift),
                self._counts,
            )

    def keep(self, path: str | os.PathLike[str]) -> None:
        """Write what was counted to `path`, whole or not at all; callers wait for the copy, not the disk."""
        save(self.record(), path)

    def resume(self, path: str | os.PathLike[str]) -> bool:
        """Go on from what `keep` wrote, if the file exists; False where there is none.

        A file of another guard, other bins or another clean reference is refused.
        """
        if not Path(path).exists():
            return False
        found: WatchRecord = load(path, kind="operation.WatchRecord")
        self._check_same(found, path)
        with self._lock:
            # All that may fail comes first: what is taken up is taken up whole.
            histogram = _added(self._histogram, found.histogram) if self.bins is not None else None
            counts = _added(self._counts, found.counts) if self.estimator is not None else None
            volatility = self.volatility and (found.volatility or self.volatility)
            drift = self.drift and (found.drift or self.drift)
            volatility_state = None if volatility is None else volatility.update(_no_rows(volatility))
            drift_state = None if drift is None else drift.update(np.zeros(0, bool), volatility)
            self._predictions += found.predictions
            self._cancelled += found.cancelled
            self._uncounted += found.uncounted
            self._histogram, self._counts = histogram, counts
            self.volatility, self._volatility_state = volatility, volatility_state
            self.drift, self._drift_state = drift, drift_state
        return True

    def _count(self) -> None:
        """Count the rows held back; the lock is held."""
        if not self._held:
            return
        trace = Trace.concatenate([seen for seen, _ in self._held])
        alarm = torch.cat([flags for _, flags in self._held])
        self._held, self._held_rows = [], 0
        if self.bins is not None:
            self._count_features(trace, self.bins)
        if self.volatility is not None:
            self._volatility_state = self.volatility.update(trace)
        if self.drift is not None:
            self._drift_state = self.drift.update(alarm, self.volatility)
        if self.estimator is not None:
            self._estimate(trace.logits, self.estimator)

    def _count_features(self, trace: Trace, bins: Bins) -> None:
        finite = torch.isfinite(bins.values(trace)).all(dim=1)
        try:
            counted = Histogram.of(trace[finite], bins)
        except InputError:  # a value outside bins that have no overflow: find the rows without
            rows = [row for row in finite.nonzero()[:, 0].tolist() if _fits(trace[row], bins)]
            counted = Histogram.of(trace[torch.tensor(rows, dtype=torch.long)], bins)
        self._uncounted += len(trace) - counted.total
        self._histogram = _added(self._histogram, counted)

    def _estimate(self, logits: Tensor, estimator: AccuracyEstimator) -> None:
        """Sums of every full window; what fills none yet waits."""
        self._for_estimate.append(logits[torch.isfinite(logits).all(dim=1)])
        waiting = torch.cat(self._for_estimate)
        while len(waiting) >= self.window:
            counts = estimator.count(Trace(waiting[: self.window]))
            waiting = waiting[self.window :]
            self._estimates = estimator.estimate(counts)
            self._counts = _added(self._counts, counts)
        self._for_estimate = [waiting]

    def _check_same(self, found: WatchRecord, path: str | os.PathLike[str]) -> None:
        different = [] if found.guard == self.guard.fingerprint else ["guard"]
        if self.bins is not None and found.histogram is not None and found.histogram.bins != self.bins:
            different.append("bins")
        pairs = ((self.volatility, found.volatility), (self.drift, found.drift))
        if any(one and other and one.fingerprint != other.fingerprint for one, other in pairs):
            different.append("clean reference")
        if self.estimator is not None and found.counts is not None:
            different += [] if found.counts.estimator == self.estimator.fingerprint else ["estimator"]
        if different:
            raise InputError(
                f"expected {path} to hold what this guard counted, got another {' and '.join(different)}; "
                "go on with the same settings, or move the file away"
            )


def _check_bins(guard: AnyGuard, bins: Bins) -> None:
    known = guard.layers
    if missing := [layer for layer in bins.layers if layer not in known]:
        raise InputError(
            f"expected a guard that gives the features of {missing}, got {list(known) or 'none'}; watch them "
            "with Network(module, layers=...), or export the guard with features=True"
        )
    if bins.network is not None and bins.network != (network := guard.network_fingerprint):
        raise InputError(
            f"expected bins made for the guard's network {network}, got bins for {bins.network}; "
            "make new ones for these weights"
        )


def _fits(row: Trace, bins: Bins) -> bool:
    try:
        bins.cells(row)
    except InputError:
        return False
    return True


def _added(one: Any, other: Any) -> Any:
    """The sum of two counts, either of which may not be there yet."""
    return other if one is None else one if other is None else one + other


def _no_rows(volatility: VolatilityWatch) -> Any:
    return np.zeros((0, max(volatility.classes_, 2)))
