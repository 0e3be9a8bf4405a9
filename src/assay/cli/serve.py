"""`assay serve`: a guard over HTTP, counted and watched."""

import logging
import math
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.places import Written
from assay.errors import InputError

if TYPE_CHECKING:
    from assay import Bins, Guard, OnnxGuard, Trace, Watch


def serve(
    guard: Annotated[Path, typer.Argument(help="A saved Guard, or an exported one (.onnx).")],
    network: Annotated[
        str | None,
        typer.Argument(help="module:factory that returns the network of a saved Guard, or its .onnx file."),
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option(
            help="A saved Trace of clean data: calibrates the watches, lays out bins for the histogram and, "
            "if it has labels, starts the estimates of accuracy."
        ),
    ] = None,
    bins: Annotated[Path | None, typer.Option(help="Saved Bins for the histogram.")] = None,
    layer: Annotated[str, typer.Option(help="Layer of the histogram.")] = "penultimate",
    width: Annotated[float, typer.Option(help="Bin width, where bins come from --reference.")] = 1.0,
    window: Annotated[int, typer.Option(help="Predictions per window of the watches.")] = 1000,
    false_alarm_rate: Annotated[
        float, typer.Option(help="Chance that a watch ever sounds on a clean stream.")
    ] = 0.01,
    block: Annotated[
        int, typer.Option(help="After how many rows of the stream neighbours are no longer alike.")
    ] = 1,
    state: Annotated[
        Path | None,
        typer.Option(help="File that counts are kept in, and taken up from at the start."),
        Written(kept=True),
    ] = None,
    every: Annotated[float, typer.Option(help="Seconds between two writings of --state.")] = 10.0,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 8080,
    name: Annotated[str, typer.Option(help="Name of the model in addresses.")] = "guard",
    token: Annotated[
        str | None, typer.Option(envvar="ASSAY_TOKEN", help="Asked of every client, where given.")
    ] = None,
    most_rows: Annotated[int, typer.Option(help="Rows of a request.")] = 256,
    most_bytes: Annotated[int, typer.Option(help="Bytes of a request.")] = 16 * 2**20,
    most_waiting: Annotated[int, typer.Option(help="Requests taken and not answered; more get a 503.")] = 32,
    timeout: Annotated[float, typer.Option(help="Seconds until a request gets a 504.")] = 30.0,
    workers: Annotated[int, typer.Option(help="Requests computed at the same time.")] = 1,
) -> None:
    """Serve a guard: predictions with score and alarm, /metrics for Prometheus, counts on disk.

    `POST /v2/models/guard/infer` takes and gives JSON of the v2 inference protocol.

    Exit status: 0 stopped, 2 wrong use.

    Example: `assay serve guard.safetensors my.models:trained --reference clean.safetensors --state counts`
    """
    from assay.web.service import Limits, Service

    served = _guard(guard, network, bins, layer)
    watch = _watch(served, reference, bins, layer, width, window, false_alarm_rate, block)
    service = Service(
        watch,
        name=name,
        state=state,
        every=every,
        limits=Limits(most_bytes, most_rows, most_waiting, timeout, workers),
        token=token,
    )
    _run(service.app, host, port, name, timeout)


def _guard(path: Path, network: str | None, bins: Path | None, layer: str) -> "Guard | OnnxGuard":
    import assay
    from assay.cli.reference import network_at

    if path.suffix == ".onnx":
        if network is not None:
            raise InputError(f"expected no network beside {path}, which holds its own, got {network}")
        return assay.OnnxGuard(path)
    if not path.exists():
        raise InputError(f"expected a guard at {path}, found none; check the path")
    if network is None:
        raise InputError(
            f"expected the network of {path}, which the file does not hold; pass module:factory as well"
        )
    layers = _layers(bins, layer)
    found: Guard = assay.load(path, network=network_at(network, layers), kind="Guard")
    return found


def _layers(bins: Path | None, layer: str) -> tuple[str, ...]:
    """Those of the histogram, and the one that monitors watch unless told otherwise."""
    import assay

    wanted = (layer,) if bins is None else assay.load(bins, kind="Bins").layers
    return tuple(dict.fromkeys(("penultimate", *wanted)))


def _watch(
    guard: "Guard | OnnxGuard",
    reference: Path | None,
    bins: Path | None,
    layer: str,
    width: float,
    window: int,
    rate: float,
    block: int,
) -> "Watch":
    import assay

    chosen: Bins | None = None if bins is None else assay.load(bins, kind="Bins")
    if reference is None:
        return assay.Watch(guard, chosen)
    clean: Trace = assay.load(reference, kind="Trace")
    if chosen is None and layer in _given_layers(guard):
        network = guard.network if isinstance(guard, assay.Guard) else None
        chosen = assay.Bins.from_data(clean, layer, width, network=network)
    watch: Any = {"volatility": assay.VolatilityWatch(window, false_alarm_rate=rate, block=block)}
    watch["volatility"].calibrate(clean)
    alarm = _clean_alarm(guard, clean)
    if alarm is not None:
        watch["drift"] = assay.DriftWatch(false_alarm_rate=rate, block=block).calibrate(alarm)
    if clean.labels is not None:
        watch["estimator"] = assay.AccuracyEstimator.fit(clean, window=min(window, len(clean)))
    return assay.Watch(guard, chosen, **watch)


def _clean_alarm(guard: "Guard | OnnxGuard", clean: "Trace") -> Any:
    """The guard's alarms on clean data; an exported guard judges inputs only, which a Trace may not have."""
    import assay

    if isinstance(guard, assay.Guard):
        return guard.judge(clean).alarm
    return None if clean.inputs is None else guard(clean.inputs).alarm


def _given_layers(guard: "Guard | OnnxGuard") -> tuple[str, ...]:
    import assay

    return guard.network.layers if isinstance(guard, assay.Guard) else guard.layers


def _run(app: Any, host: str, port: int, name: str, timeout: float) -> None:
    import uvicorn

    from assay.web.listening import listening

    taken = listening(host, port)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        limit_concurrency=1000,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=math.ceil(timeout),
    )
    for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn raises them again once all is answered and kept
        signal.signal(number, _end)
    place = taken.getsockname()
    print(f"assay: http://{place[0]}:{place[1]}/v2/models/{name}/infer and /metrics", flush=True)
    uvicorn.Server(config).run(sockets=[taken])


def _end(*_: object) -> None:
    raise SystemExit(0)
