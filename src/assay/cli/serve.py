"""`assay serve`: a guard over HTTP, counted and watched."""

import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.places import Written
from assay.errors import InputError, UndecidedError

if TYPE_CHECKING:
    from assay import Bins, Guard, Trace, Watch
    from assay.guard import AnyGuard


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
    host: Annotated[
        str, typer.Option(help="Address to listen on; one that others can reach needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 8080,
    name: Annotated[str, typer.Option(help="Name of the model in addresses.")] = "guard",
    token: Annotated[
        str | None, typer.Option(envvar="ASSAY_TOKEN", help="Asked of every client, where given.")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen to other machines also without a token.")
    ] = False,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="Another name that clients know this service by; may be given more than once."),
    ] = None,
    most_rows: Annotated[int, typer.Option(help="Rows of a request.")] = 256,
    most_bytes: Annotated[
        int, typer.Option(help="Bytes of a request, and of the numbers in its answer.")
    ] = 16 * 2**20,
    most_waiting: Annotated[int, typer.Option(help="Requests taken and not answered; more get a 503.")] = 32,
    timeout: Annotated[float, typer.Option(help="Seconds until a request gets a 504.")] = 30.0,
    body_timeout: Annotated[
        float, typer.Option(help="Seconds until a request whose body is not whole gets a 408.")
    ] = 20.0,
    workers: Annotated[int, typer.Option(help="Requests computed at the same time.")] = 1,
) -> None:
    """Serve a guard: predictions with score and alarm, /metrics for Prometheus, counts on disk.

    `POST /v2/models/guard/infer` takes and gives JSON of the v2 inference protocol.

    Exit status: 0 stopped, 2 wrong use.

    Example: `assay serve guard.safetensors my.models:trained --reference clean.safetensors --state counts`
    """
    from assay.web.service import Limits, Service

    _check_door(host, token, insecure)
    limits = Limits(most_bytes, most_rows, most_waiting, timeout, body_timeout, workers)
    served = _guard(guard, network)
    watch = _watch(served, reference, bins, layer, width, window, false_alarm_rate, block)
    service = Service(
        watch,
        name=name,
        state=state,
        every=every,
        limits=limits,
        token=token,
        hosts=(host, *(allow_host or ())),
    )
    _run(service.app, host, port, name, timeout)


def _check_door(host: str, token: str | None, insecure: bool) -> None:
    """Nobody is let in by mistake: not by a token that is empty, not from other machines without one."""
    from assay.web.listening import is_this_machine
    from assay.web.token import check_token

    if token is None:  # typer takes an empty variable for none
        token = os.environ.get("ASSAY_TOKEN")
    if token is not None:
        check_token(token)
    elif not insecure and not is_this_machine(host):
        raise InputError(
            f"expected a token for {host or 'all addresses'}, which other machines can reach, got none; pass "
            "--token or set ASSAY_TOKEN, or say --insecure to answer everybody"
        )


def _guard(path: Path, network: str | None) -> "AnyGuard":
    import assay
    from assay.cli.network_reference import network_at

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
    # Without layers of its own: the guard knows which ones it watches.
    found: Guard = assay.load(path, network=network_at(network, layers=()), kind="Guard")
    return found


def _watch(
    guard: "AnyGuard",
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
    clean: Trace | None = None if reference is None else assay.load(reference, kind="Trace")
    told = clean is not None and (layer in clean.features or layer != "penultimate")
    counted = (layer,) if told else ()
    guard = guard.watching(counted if chosen is None else chosen.layers)
    if clean is None:
        return assay.Watch(guard, chosen)
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
    if clean.labels is not None:
        watch["estimator"] = assay.AccuracyEstimator(window=min(window, len(clean))).fit(clean)
    return assay.Watch(guard, chosen, **watch)


def _run(app: Any, host: str, port: int, name: str, timeout: float) -> None:
    from assay.web.listening import address_of, listening, serve_until_stopped

    taken = listening(host, port)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    print(f"assay: {address_of(taken)}/v2/models/{name}/infer and /metrics", flush=True)
    serve_until_stopped(app, taken, timeout, log_config=None)
