"""The state of a watch as metrics of OpenTelemetry."""

from collections.abc import Callable, Iterable
from typing import Any

from assay.accuracy.headline import AccuracyVerdict
from assay.errors import InputError
from assay.extras import expect_installed
from assay.operation.watch import Watch, WatchState

Read = Callable[[WatchState], float | None]
"""A number of the state; None where there is none (yet)."""

COUNTERS: dict[str, tuple[str, Read]] = {
    "assay.predictions": ("Predictions so far", lambda state: float(state.predictions)),
    "assay.predictions.cancelled": ("Predictions under alarm so far", lambda state: float(state.cancelled)),
}
GAUGES: dict[str, tuple[str, Read]] = {
    "assay.drift.alarm": (
        "1 once the share of alarms has changed",
        lambda state: None if state.drift is None else float(state.drift.alarm),
    ),
    "assay.volatility.alarm": (
        "1 once certainty has changed",
        lambda state: None if state.volatility is None else float(state.volatility.alarm),
    ),
    "assay.accuracy": (
        "The answer about accuracy over the last window",
        lambda state: _accuracy(state, "value"),
    ),
    "assay.accuracy.lower": ("Lower end of its interval", lambda state: _accuracy(state, "lower")),
    "assay.accuracy.upper": ("Upper end of its interval", lambda state: _accuracy(state, "upper")),
    "assay.accuracy.fallen": ("1 if accuracy has fallen in the last window", lambda state: _fallen(state)),
}


def watch_with_opentelemetry(watch: Watch, meter: Any = None, **attributes: str) -> None:
    """Let a meter of OpenTelemetry read the watch whenever it exports.

    meter: one of your provider; without, that of the global provider. attributes: of every value, such as
    model="signs". Each export reads the state once per metric; predictions are not touched.
    """
    expect_installed("opentelemetry")
    from opentelemetry import metrics

    if not isinstance(watch, Watch):
        raise InputError(f"expected an assay.Watch to export, got {type(watch).__name__}; pass Watch(guard)")
    chosen = metrics.get_meter("assay") if meter is None else meter
    for name, (words, read) in COUNTERS.items():
        chosen.create_observable_counter(name, [_observed(watch, read, attributes)], description=words)
    for name, (words, read) in GAUGES.items():
        chosen.create_observable_gauge(name, [_observed(watch, read, attributes)], description=words)


def _observed(watch: Watch, read: Read, attributes: dict[str, str]) -> Callable[[Any], Iterable[Any]]:
    from opentelemetry.metrics import Observation

    def observe(_: Any) -> Iterable[Any]:
        value = read(watch.state_now())
        return [] if value is None or value != value else [Observation(value, attributes)]

    return observe


def _latest(state: WatchState) -> Any:
    return None if state.history is None else state.history.latest


def _fallen(state: WatchState) -> float | None:
    now = _latest(state)
    return None if now is None else float(now.verdict == AccuracyVerdict.FALLEN)


def _accuracy(state: WatchState, part: str) -> float | None:
    now = _latest(state)
    return None if now is None else float(getattr(now, part))
