"""`assay volatility`: watch a file or a stream of probabilities; the exit status says how it went."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.options import ForMachines, Report
from assay.cli.status import ALARM, FINE, UNDECIDED
from assay.errors import InputError

if TYPE_CHECKING:
    from assay.volatility import VolatilityState, VolatilityWatch
    from assay.volatility.probabilities import Array


def volatility(
    source: Annotated[
        str,
        typer.Argument(help="Probabilities: csv, npz, npy, a saved Trace, JSON lines; - is standard input."),
    ],
    reference: Annotated[
        str | None, typer.Option(help="Clean probabilities, in the same formats, to compare with.")
    ] = None,
    watch: Annotated[
        Path | None, typer.Option(help="Go on with the watch saved here, if there is one; save it after.")
    ] = None,
    window: Annotated[int, typer.Option(help="Predictions per window.")] = 1000,
    false_alarm_rate: Annotated[
        float, typer.Option(help="Chance of ever sounding on a clean stream.")
    ] = 0.01,
    block: Annotated[
        int, typer.Option(help="After how many rows of the stream neighbours are no longer alike.")
    ] = 1,
    plot: Annotated[Path | None, typer.Option(help="Where the plot goes (png, svg or pdf).")] = None,
    report: Report = None,
    stop: Annotated[bool, typer.Option("--stop", help="Stop at the first alarm.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the reference windows.")] = 0,
    as_json: ForMachines = False,
) -> None:
    """Watch predictions for a change in certainty, without labels.

    Exit status: 0 quiet, 1 alarm, 2 wrong use, 3 cannot decide (no full window, or nothing to compare with).

    Example: `assay volatility live.csv --reference clean.csv --window 500`
    """
    import assay
    from assay.volatility.records import probability_chunks

    if reference is None and not (watch and watch.is_file()):
        _measured(source, as_json)
        raise typer.Exit(UNDECIDED)
    if watch and watch.is_file():
        watched: VolatilityWatch = assay.load(watch, kind="VolatilityWatch")
    else:
        watched = _calibrated(str(reference), window, false_alarm_rate, block, seed)
    state, alarms = None, set[str]()
    for chunk in probability_chunks(source):
        state = watched.update(chunk)
        alarms.update(state.alarms)
        if stop and alarms:
            break
    if watch:
        assay.save(watched, watch)
    status = ALARM if alarms else FINE if state and state.full else UNDECIDED
    _report(watched, state, sorted(alarms), status, as_json)
    if plot:
        watched.plot().savefig(plot)
    if report:
        assay.write_report([watched], report)
    raise typer.Exit(status)


def _calibrated(
    reference: str, window: int, false_alarm_rate: float, block: int, seed: int
) -> "VolatilityWatch":
    from assay.volatility import VolatilityWatch

    return VolatilityWatch(window, false_alarm_rate=false_alarm_rate, block=block).calibrate(
        _whole(reference), seed=seed
    )


def _whole(source: str) -> "Array":
    import numpy as np

    from assay.volatility.records import probability_chunks

    chunks = list(probability_chunks(source))
    if not chunks:
        raise InputError(f"expected probabilities in {source}, got none; check the file")
    return np.concatenate(chunks)


def _measured(source: str, as_json: bool) -> None:
    """Without a reference: the number alone."""
    from assay.volatility import log_volatility
    from assay.volatility.certainty import FEWEST

    rows = _whole(source)
    count = len(rows)
    log_vc = log_volatility(rows) if count >= FEWEST else None
    if as_json:
        print(json.dumps({"rows": count, "log_vc": log_vc, "status": "undecided"}))
        return
    print(f"{count:,} predictions" + ("" if log_vc is None else f", log VC {log_vc:.4f}"))
    print("cannot decide: nothing to compare with; pass --reference with clean probabilities")


def _report(
    watch: "VolatilityWatch", last: "VolatilityState | None", alarms: list[str], status: int, as_json: bool
) -> None:
    if as_json:
        facts = {
            "rows": watch.rows_,
            "bad_rows": watch.bad_rows_,
            "log_vc": last.log_vc if last and last.full else None,
            "reference_log_vc": watch.reference.mean,
            "evidence": last.evidence if last else 1.0,
            "alarms": alarms,
            "status": {FINE: "quiet", ALARM: "alarm", UNDECIDED: "undecided"}[status],
            "windows": watch.to_frame().to_dict(orient="records"),
        }
        print(json.dumps(facts))
        return
    frame = watch.to_frame()
    if len(frame):
        print(
            frame.to_string(index=False, formatters={"log_vc": "{:.3f}".format, "p_value": "{:.3g}".format})
        )
    print(watch.summary())
    if status == UNDECIDED:
        print("cannot decide: fewer rows than one window; pass more rows or a smaller --window")
