"""Metrics of a guard in operation for Prometheus: one prefix, base units, never a label per neuron."""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest
from prometheus_client.core import GaugeMetricFamily

from assay.accuracy.headline import AccuracyVerdict
from assay.operation import AccuracyHistory, Watch

if TYPE_CHECKING:
    from assay.web.tally import Seen

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


class Metrics:
    """Counters of requests, and the watch's state at the moment of asking."""

    def __init__(self, watch: Watch, facts: dict[str, str]) -> None:
        registry = CollectorRegistry()
        self.registry = registry
        self.watch = watch
        self.predictions = Counter(
            "assay_predictions", "Predictions by what the guard decided", ["decision"], registry=registry
        )
        for decision in ("accepted", "cancelled"):
            self.predictions.labels(decision)
        self.alarms = Counter(
            "assay_alarms", "Alarms by the member with the most evidence", ["reason"], registry=registry
        )
        for member in watch.guard.members:
            self.alarms.labels(member)
        self.requests = Counter(
            "assay_requests",
            "Requests by status: all for inference, others if refused",
            ["status"],
            registry=registry,
        )
        self.request = _seconds("assay_request_seconds", "From the first byte to the answer", registry)
        self.model = _seconds("assay_model_seconds", "The network's forward pass", registry)
        self.monitor = _seconds("assay_monitor_seconds", "The monitor's scores of a forward pass", registry)
        self.waiting = Gauge(
            "assay_requests_waiting", "Requests accepted and not yet answered", registry=registry
        )
        self.reading = Gauge(
            "assay_requests_reading", "Requests whose body is still arriving", registry=registry
        )
        self.workers = Gauge("assay_workers", "Worker processes that take requests", registry=registry)
        self.workers.set(1)
        self.restarts = Counter(
            "assay_worker_restarts", "Workers started in the place of one that ended", registry=registry
        )
        self.kept = Gauge(
            "assay_state_kept_timestamp_seconds",
            "When the counts were last written to disk",
            registry=registry,
        )
        Info("assay_build", "What is running", registry=registry).info(facts)
        registry.register(_WatchCollector(watch))

    def add(self, seen: "Seen") -> None:
        cancelled = int(seen.alarm.sum())
        self.predictions.labels("cancelled").inc(cancelled)
        self.predictions.labels("accepted").inc(len(seen.alarm) - cancelled)
        for reason, count in seen.reasons.items():
            self.alarms.labels(reason).inc(count)
        self.model.observe(seen.model_seconds)
        self.monitor.observe(seen.monitor_seconds)

    def text(self) -> bytes:
        return bytes(generate_latest(self.registry))


class _WatchCollector:
    """The watch's state, read when it is collected."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch

    def describe(self) -> Iterable[Any]:
        return []

    def collect(self) -> Iterable[Any]:
        state = self.watch.state_now()
        yield _gauge("assay_uncounted_rows", "Rows that fall into no bin", state.uncounted)
        if (found := state.volatility) is not None:
            log_vc = found.log_vc if found.full else math.nan
            yield _gauge("assay_log_vc", "log VC of the last window, NaN until it is full", log_vc)
            yield _gauge("assay_reference_log_vc", "log VC of clean windows", found.reference_log_vc)
            yield _gauge("assay_volatility_evidence", "Evidence that certainty changed", found.evidence)
            yield _gauge("assay_volatility_alarm", "1 once the evidence was decisive", float(found.alarm))
        if (drift := state.drift) is not None:
            yield _gauge("assay_alarm_ratio", "Share of alarms in the last round", drift.alarm_rate)
            yield _gauge("assay_reference_alarm_ratio", "On clean data", drift.reference_alarm_rate)
            yield _gauge("assay_drift_evidence", "Evidence that the stream changed", drift.evidence)
            yield _gauge("assay_drift_alarm", "1 once the evidence was decisive", float(drift.alarm))
        if state.history is not None:
            yield from _headline_gauges(state.history)
        if state.estimates is not None:
            yield from _method_gauges(state.estimates.estimates)


def _headline_gauges(history: AccuracyHistory) -> Iterable[Any]:
    """The answer about the last window; NaN where it cannot be told, and before the first."""
    now = history.latest
    for name, part in (("", "value"), ("_lower", "lower"), ("_upper", "upper")):
        text = f"The answer about accuracy over the last window: {part}; NaN where it cannot be told"
        yield _gauge(f"assay_accuracy{name}_ratio", text, math.nan if now is None else getattr(now, part))
    yield _gauge("assay_reference_accuracy_ratio", "Accuracy on the reference", history.reference_accuracy)
    yield _gauge("assay_accuracy_windows", "Windows that were answered about", history.windows)
    family = GaugeMetricFamily(
        "assay_accuracy_verdict",
        "1 for the verdict about the last window, 0 for the others",
        labels=["verdict"],
    )
    for verdict in AccuracyVerdict:
        family.add_metric([verdict.value], float(now is not None and now.verdict == verdict))
    yield family


def _method_gauges(estimates: Iterable[Any]) -> Iterable[Any]:
    found = list(estimates)
    for name, part in (("", "value"), ("_lower", "lower"), ("_upper", "upper")):
        family = GaugeMetricFamily(
            f"assay_estimated_accuracy{name}_ratio",
            f"Accuracy without labels over the last window: {part}",
            labels=["method"],
        )
        for estimate in found:
            family.add_metric([estimate.method], getattr(estimate, part))
        yield family


def _gauge(name: str, text: str, value: float) -> Any:
    return GaugeMetricFamily(name, text, value=value)


def _seconds(name: str, text: str, registry: CollectorRegistry) -> Histogram:
    return Histogram(name, text, buckets=SECONDS, registry=registry)
