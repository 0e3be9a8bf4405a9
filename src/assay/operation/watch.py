"""Watch: a guard that counts what it sees, for your own service and for assay's."""

import copy
import threading
import uuid
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.accuracy.estimator import AccuracyEstimator
from assay.accuracy.result import AccuracyEstimates
from assay.errors import InputError
from assay.guard import Answer, AnyGuard, Verdict
from assay.operation.accuracy_history import AccuracyHistory
from assay.operation.accuracy_windows import AccuracyWindows
from assay.operation.drift import DriftState, DriftWatch
from assay.operation.watch_record import WatchRecord
from assay.outputs import LOGITS
from assay.reshaping.bins import Bins
from assay.reshaping.histogram import Histogram
from assay.trace import Trace
from assay.volatility.stream_watch import StreamWatch
from assay.volatility.watch import VolatilityState, VolatilityWatch

COUNTED_TOGETHER = 256
"""Rows that wait to be counted together: counting one row costs nearly as much as counting 256."""

ESTIMATE_WINDOW = 1000
"""Rows per estimate of accuracy, where no volatility watch sets the length of a window."""


@dataclass(frozen=True)
class WatchState:
    """The counts and states of a watched guard so far."""

    predictions: int
    cancelled: int
    """Predictions on which the guard raised the alarm."""
    uncounted: int
    """Rows that fall into no bin: not finite, or outside bins without overflow."""
    volatility: VolatilityState | None
    drift: DriftState | None
    estimates: AccuracyEstimates | None
    """Of the last full window; None before the first since the start, and without an estimator."""
    history: AccuracyHistory | None = None
    """The answers about the last 500 windows, also from before a restart; None without an estimator."""

    @property
    def alarm(self) -> bool:
        """Whether the volatility watch or the drift watch has raised the alarm."""
        return any(state.alarm for state in (self.volatility, self.drift) if state is not None)


class Watch(StreamWatch[WatchState]):
    """`watched(inputs)` is `guard(inputs)`, and counts what it sees; any number of threads may call it.

    histogram: `Bins` to count features in, or a `Histogram` to continue. volatility: a calibrated
    `VolatilityWatch`. drift: a calibrated `DriftWatch`. estimator: a fitted `AccuracyEstimator`, asked again
    after every `window` rows (default: those of the volatility watch, or 1,000). Until then rows wait
    with the layer that it reads, and without their inputs. All are optional, and belong to the watch from now
    on.

    A call costs the guard and a few microseconds; rows are counted 256 at a time, or when you ask for
    `state_now`, `histogram` or `keep`. The forward pass of one thread does not wait for that of another.
    """

    kept_as = "operation.WatchRecord"

    def __init__(
        self,
        guard: AnyGuard,
        histogram: Histogram | Bins | None = None,
        volatility: VolatilityWatch | None = None,
        *,
        drift: DriftWatch | None = None,
        estimator: AccuracyEstimator | None = None,
        window: int | None = None,
    ) -> None:
        if not isinstance(guard, AnyGuard):
            raise InputError(f"expected a Guard or an OnnxGuard to watch, got {type(guard).__name__}")
        guard.decided_threshold()
        self.guard = guard
        self.bins = histogram.bins if isinstance(histogram, Histogram) else histogram
        if self.bins is not None:
            _check_bins(guard, self.bins)
        if estimator is not None:
            _check_estimator(guard, estimator)
        self.volatility = volatility
        self.drift = drift
        self.estimator = estimator
        self.window = window or (ESTIMATE_WINDOW if volatility is None else volatility.window)
        self._histogram = histogram if isinstance(histogram, Histogram) else None
        self._accuracy = None if estimator is None else AccuracyWindows(estimator, self.window)
        self._volatility_state, self._drift_state = _states(volatility, drift)
        self._predictions = self._cancelled = self._uncounted = 0
        self._stream = uuid.uuid4().hex
        self._pending: list[tuple[Trace, Tensor]] = []
        self._pending_rows = 0
        self._lock = threading.Lock()

    def __call__(self, inputs: Any) -> Verdict:
        return self.answer(inputs).verdict

    def answer(self, inputs: Any) -> Answer:
        """Judge and count; also returns the Trace and the seconds it took."""
        answer = self.guard.answer(inputs)
        self.count(answer.trace, answer.verdict.alarm)
        return answer

    def count(self, trace: Trace, alarm: Tensor) -> None:
        """Count rows that the same guard judged, here or in another process; `trace` has `counted_layers`."""
        features = {layer: trace.layer(layer) for layer in self.counted_layers}
        seen = Trace(trace.logits, features, outputs=LOGITS)
        cancelled = int(alarm.sum())
        with self._lock:
            self._predictions += len(seen)
            self._cancelled += cancelled
            self._pending.append((seen, alarm))
            self._pending_rows += len(seen)
            if self._pending_rows >= COUNTED_TOGETHER:
                self._count()

    @property
    def counted_layers(self) -> tuple[str, ...]:
        """The layers that the histogram and the estimator read."""
        bins = () if self.bins is None else self.bins.layers
        return tuple(dict.fromkeys((*bins, *(() if self.estimator is None else self.estimator.layers))))

    def state_now(self) -> WatchState:
        """Everything seen so far, counted."""
        with self._lock:
            self._count()
            return WatchState(
                self._predictions,
                self._cancelled,
                self._uncounted,
                self._volatility_state,
                self._drift_state,
                None if self._accuracy is None else self._accuracy.estimates,
                None if self._accuracy is None else self._accuracy.history,
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
        """Everything counted so far as one object: a copy, which later calls do not change."""
        guard = self.guard.fingerprint  # before the lock: it reads every weight
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
                None if self._accuracy is None else self._accuracy.counts,
                None if self._accuracy is None else self._accuracy.history,
                stream=self._stream,
            )

    def _record(self) -> WatchRecord:
        return self.record()

    def _differences(self, record: WatchRecord) -> list[str]:
        found = [] if record.guard == self.guard.fingerprint else ["guard"]
        if self.bins is not None and record.histogram is not None and record.histogram.bins != self.bins:
            found.append("bins")
        pairs = ((self.volatility, record.volatility), (self.drift, record.drift))
        if any(one and other and one.fingerprint != other.fingerprint for one, other in pairs):
            found.append("clean reference")
        if self.estimator is not None and record.counts is not None:
            found += [] if record.counts.estimator == self.estimator.fingerprint else ["estimator"]
        return found

    def _continue_from(self, record: WatchRecord) -> None:
        with self._lock:
            # Everything that may fail comes first, so that a record is taken up whole or not at all.
            histogram = _sum(self._histogram, record.histogram) if self.bins is not None else None
            counts = None if self._accuracy is None else _sum(self._accuracy.counts, record.counts)
            volatility = self.volatility and (record.volatility or self.volatility)
            drift = self.drift and (record.drift or self.drift)
            volatility_state, drift_state = _states(volatility, drift)
            self._stream = record.stream or self._stream
            self._predictions += record.predictions
            self._cancelled += record.cancelled
            self._uncounted += record.uncounted
            self._histogram = histogram
            if self._accuracy is not None:
                self._accuracy.counts = counts
                self._accuracy.history = record.history or self._accuracy.history
            self.volatility, self._volatility_state = volatility, volatility_state
            self.drift, self._drift_state = drift, drift_state

    def _count(self) -> None:
        """Count the pending rows; the caller holds the lock."""
        if not self._pending:
            return
        trace = Trace.concatenate([seen for seen, _ in self._pending])
        alarm = torch.cat([flags for _, flags in self._pending])
        self._pending, self._pending_rows = [], 0
        if self.bins is not None:
            self._count_features(trace, self.bins)
        if self.volatility is not None:
            self._volatility_state = self.volatility.update(trace)
        if self.drift is not None:
            self._drift_state = self.drift.update(alarm, self.volatility)
        if self._accuracy is not None:
            self._accuracy.update(trace)

    def _count_features(self, trace: Trace, bins: Bins) -> None:
        finite = torch.isfinite(bins.values(trace)).all(dim=1)
        try:
            counted = Histogram.of(trace[finite], bins)
        except InputError:  # a value outside bins that have no overflow: find the rows without one
            rows = [row for row in finite.nonzero()[:, 0].tolist() if _fits(trace[row], bins)]
            counted = Histogram.of(trace[torch.tensor(rows, dtype=torch.long)], bins)
        self._uncounted += len(trace) - counted.total
        self._histogram = _sum(self._histogram, counted)


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


def _check_estimator(guard: AnyGuard, estimator: AccuracyEstimator) -> None:
    estimator.expect_fitted()
    if missing := [layer for layer in estimator.layers if layer not in guard.layers]:
        raise InputError(
            f"expected a guard that gives the features of {missing}, which the estimator learned from, got "
            f"{list(guard.layers) or 'none'}; pass guard.watching({missing}), or export the guard with "
            "features=True"
        )
    if estimator.network_ is not None and estimator.network_ != (network := guard.network_fingerprint):
        raise InputError(
            f"expected an estimator taught on the guard's network {network}, got one taught on "
            f"{estimator.network_}; teach one with these weights"
        )


def _fits(row: Trace, bins: Bins) -> bool:
    try:
        bins.cells(row)
    except InputError:
        return False
    return True


def _sum(one: Any, other: Any) -> Any:
    """The sum of two counts, either of which may be None."""
    return other if one is None else one if other is None else one + other


def _states(
    volatility: VolatilityWatch | None, drift: DriftWatch | None
) -> tuple[VolatilityState | None, DriftState | None]:
    """The present state of both; an error if one is not calibrated, or if they do not match."""
    return (
        None if volatility is None else volatility.state_now(),
        None if drift is None else drift.update(np.zeros(0, bool), volatility),
    )
