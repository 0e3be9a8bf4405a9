"""`assay serve`: a guard over HTTP, counted and watched."""

import logging
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.places import Written
from assay.cli.saved_guard import NetworkOfGuard, SavedGuard, guard_at
from assay.errors import InputError, UndecidedError

if TYPE_CHECKING:
    from assay import AccuracyEstimator, Bins, Trace, Watch
    from assay.guard import AnyGuard
    from assay.web.alerts import Webhook


CleanTrace = Annotated[
    Path | None,
    typer.Option(
        help="A saved Trace of clean data: calibrates the watches, lays out the bins of the histogram and, "
        "if it has labels, starts the estimates of accuracy."
    ),
]
SavedEstimator = Annotated[
    Path | None,
    typer.Option(
        help="A saved AccuracyEstimator, as assay accuracy and assay check write it, instead of one that "
        "knows only --reference."
    ),
]
SavedBins = Annotated[Path | None, typer.Option(help="Saved Bins for the histogram.")]
Layer = Annotated[str, typer.Option(help="Layer of the histogram.")]
Width = Annotated[float, typer.Option(help="Bin width, where bins come from --reference.")]
Window = Annotated[int, typer.Option(help="Predictions per window of the watches.")]
FalseAlarmRate = Annotated[
    float, typer.Option(help="Chance that a watch ever raises the alarm on a clean stream.")
]
Block = Annotated[int, typer.Option(help="Number of consecutive rows that may be correlated.")]
StateFile = Annotated[
    Path | None,
    typer.Option(help="File that keeps the counts; read at the start."),
    Written(kept=True),
]
Every = Annotated[float, typer.Option(help="Seconds between two writes of --state.")]
Host = Annotated[str, typer.Option(help="Address to listen on; one that others can reach needs a token.")]
Port = Annotated[int, typer.Option(help="Port to listen on; 0 picks a free one.")]
ModelName = Annotated[str, typer.Option(help="Name of the model in addresses.")]
Token = Annotated[str | None, typer.Option(envvar="ASSAY_TOKEN", help="Token that every client must send.")]
Insecure = Annotated[bool, typer.Option("--insecure", help="Let other machines in even without a token.")]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(help="Another name that clients call this service by; may be repeated."),
]
MostRows = Annotated[int, typer.Option(help="Most rows per request.")]
MostBytes = Annotated[int, typer.Option(help="Most bytes per request, and per answer.")]
MostWaiting = Annotated[
    int, typer.Option(help="Most requests accepted and not yet answered; further ones get a 503.")
]
Timeout = Annotated[float, typer.Option(help="Seconds until a request gets a 504.")]
BodyTimeout = Annotated[float, typer.Option(help="Seconds until an incomplete request gets a 408.")]
Workers = Annotated[
    int,
    typer.Option(help="Worker processes on the port; with more than 1, one that ends is replaced.", min=1),
]
Threads = Annotated[int, typer.Option(help="Requests that a worker computes at the same time.")]
BatchWait = Annotated[
    float | None,
    typer.Option(help="Milliseconds a request may wait for others to be computed with; without it, alone."),
]
DrainSeconds = Annotated[
    float,
    typer.Option(help="Seconds between SIGTERM, from when it says it is not ready, and the last request."),
]
AlertSlack = Annotated[
    list[str] | None,
    typer.Option(
        envvar="ASSAY_ALERT_SLACK", help="Webhook of Slack that is told when a watch raises the alarm."
    ),
]
AlertManager = Annotated[
    list[str] | None,
    typer.Option(
        envvar="ASSAY_ALERT_ALERTMANAGER", help="Alertmanager that is told: http://host:9093/api/v2/alerts."
    ),
]


def serve(
    guard: SavedGuard,
    network: NetworkOfGuard = None,
    reference: CleanTrace = None,
    estimator: SavedEstimator = None,
    bins: SavedBins = None,
    layer: Layer = "penultimate",
    width: Width = 1.0,
    window: Window = 1000,
    false_alarm_rate: FalseAlarmRate = 0.01,
    block: Block = 1,
    state: StateFile = None,
    every: Every = 10.0,
    host: Host = "127.0.0.1",
    port: Port = 8080,
    name: ModelName = "guard",
    token: Token = None,
    insecure: Insecure = False,
    allow_host: AllowHost = None,
    most_rows: MostRows = 256,
    most_bytes: MostBytes = 16 * 2**20,
    most_waiting: MostWaiting = 32,
    timeout: Timeout = 30.0,
    body_timeout: BodyTimeout = 20.0,
    workers: Workers = 1,
    threads: Threads = 1,
    batch_wait_ms: BatchWait = None,
    drain: DrainSeconds = 0.0,
    alert_slack: AlertSlack = None,
    alert_alertmanager: AlertManager = None,
) -> None:
    """Serve a guard: predictions with score and alarm, /metrics for Prometheus, counts on disk.

    `POST /v2/models/guard/infer` takes and returns JSON of the v2 inference protocol.

    Exit status: 0 stopped, 2 wrong use.

    Example: `assay serve guard.safetensors my.models:trained --reference clean.safetensors --state counts`
    """
    from assay.web.alerts import alerting
    from assay.web.limits import Limits
    from assay.web.listening import Drain, listening_socket
    from assay.web.supervisor import serve_guard
    from assay.web.worker_process import LOG_FORMAT, WorkerPlan

    _check_access(host, token, insecure)
    hooks = _webhooks(alert_slack, alert_alertmanager)
    batch_seconds = None if batch_wait_ms is None else batch_wait_ms / 1000
    limits = Limits(most_bytes, most_rows, most_waiting, timeout, body_timeout, threads, batch_seconds)
    draining = Drain(drain)
    loaded = guard_at(guard, network)
    watch = _build_watch(loaded, reference, bins, layer, width, window, false_alarm_rate, block, estimator)
    load = partial(_watched_guard, guard, network, watch.guard.layers)
    hosts = (host, *(allow_host or ()))
    plan = WorkerPlan.of(watch, load, name, limits, token, hosts, workers)
    logging.basicConfig(level=logging.WARNING, format=LOG_FORMAT)
    with listening_socket(host, port) as listener, alerting(watch, name, hooks):
        serve_guard(watch, plan, listener, workers=workers, state=state, every=every, drain=draining)


def _webhooks(slack: list[str] | None, alertmanager: list[str] | None) -> "list[Webhook]":
    from assay.web.alerts import AlertmanagerForm, SlackForm, Webhook

    return [
        *(Webhook(address, SlackForm()) for address in slack or []),
        *(Webhook(address, AlertmanagerForm()) for address in alertmanager or []),
    ]


def _check_access(host: str, token: str | None, insecure: bool) -> None:
    """Let nobody in by mistake: not with an empty token, not from other machines without one."""
    from assay.web.listening import is_this_machine
    from assay.web.token import check_token

    if token is None:  # typer reads an empty variable as none
        token = os.environ.get("ASSAY_TOKEN")
    if token is not None:
        check_token(token)
    elif not insecure and not is_this_machine(host):
        raise InputError(
            f"expected a token for {host or 'all addresses'}, which other machines can reach, got none; pass "
            "--token or set ASSAY_TOKEN, or pass --insecure to answer everybody"
        )


def _build_watch(
    guard: "AnyGuard",
    reference: Path | None,
    bins: Path | None,
    layer: str,
    width: float,
    window: int,
    rate: float,
    block: int,
    estimator: Path | None = None,
) -> "Watch":
    import assay

    taught: AccuracyEstimator | None = None
    if estimator is not None:
        taught = assay.load(estimator, kind="accuracy.AccuracyEstimator")
    chosen: Bins | None = None if bins is None else assay.load(bins, kind="Bins")
    clean: Trace | None = None if reference is None else assay.load(reference, kind="Trace")
    # The default layer is counted only where the reference has it; a layer that was asked for, always.
    counts = clean is not None and (layer in clean.features or layer != "penultimate")
    counted = (layer,) if counts else ()
    guard = guard.watching(counted if chosen is None else chosen.layers)
    guard = guard if taught is None else guard.watching(taught.layers)
    if clean is None:
        return assay.Watch(guard, chosen, estimator=taught, window=window)
    if chosen is None and layer in counted and layer in guard.layers:
        seen = assay.Bins.from_data(clean, layer, width)
        chosen = replace(seen, network=guard.network_fingerprint)
    watch: Any = {"volatility": assay.VolatilityWatch(window, false_alarm_rate=rate, block=block)}
    watch["volatility"].calibrate(clean)
    try:
        alarm = guard.judge(clean).alarm
    except UndecidedError:  # an exported guard judges inputs, which a Trace need not contain
        pass
    else:
        watch["drift"] = assay.DriftWatch(false_alarm_rate=rate, block=block).calibrate(alarm)
    if taught is not None:
        watch["estimator"] = taught
    elif clean.labels is not None:
        watch["estimator"] = assay.AccuracyEstimator(window=min(window, len(clean))).fit(clean)
    return assay.Watch(guard, chosen, **watch)


def _watched_guard(path: Path, network: str | None, layers: tuple[str, ...]) -> "AnyGuard":
    """The guard in another process."""
    return guard_at(path, network).watching(layers)
