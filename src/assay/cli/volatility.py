"""`assay volatility`: watch a file or a stream of probabilities; the exit status says how it went."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.json_output import print_json
from assay.cli.options import ForMachines, Report, not_negative, without_nan
from assay.cli.origin import origin
from assay.cli.path_options import errors_in_path_syntax, predictions_and_options
from assay.cli.places import Written, write_figure
from assay.cli.status import ALARM, FINE, UNDECIDED
from assay.errors import InputError

if TYPE_CHECKING:
    from assay.operation import AccuracyWindows
    from assay.volatility import VolatilityState, VolatilityWatch
    from assay.volatility.probabilities import Array


Source = Annotated[
    str,
    typer.Argument(
        help="Probabilities: csv, parquet, npz, npy, a saved Trace, JSON lines; - is standard input."
    ),
]
CleanSource = Annotated[
    str | None, typer.Option(help="Clean probabilities to compare with, in the same formats.")
]
WatchFile = Annotated[
    Path | None,
    typer.Option(help="Continue the watch saved here, if there is one; save it afterwards."),
    Written(kept=True),
]
Window = Annotated[int | None, typer.Option(help="Predictions per window. [default: 1000]")]
FalseAlarmRate = Annotated[
    float | None,
    typer.Option(help="Chance that a clean stream ever raises the alarm. [default: 0.01]"),
]
Block = Annotated[
    int | None,
    typer.Option(help="Number of consecutive rows that may be correlated. [default: 1]"),
]
Plot = Annotated[
    Path | None, typer.Option(help="File to save the figure to (png, svg or pdf)."), Written(figure=True)
]
Stop = Annotated[bool, typer.Option("--stop", help="Stop at the first alarm.")]
ReferenceSeed = Annotated[
    int | None,
    typer.Option(help="Seed of the reference windows. [default: 0]", callback=not_negative),
]


def volatility(
    source: Source,
    reference: CleanSource = None,
    watch: WatchFile = None,
    window: Window = None,
    false_alarm_rate: FalseAlarmRate = None,
    block: Block = None,
    plot: Plot = None,
    report: Report = None,
    stop: Stop = False,
    seed: ReferenceSeed = None,
    as_json: ForMachines = False,
) -> None:
    """Watch predictions for a change in certainty, without labels.

    The alarm sounds on a change in either direction and says which: less certain than the reference (accuracy
    may have fallen), or more certain (easier inputs, or confident attacks).

    If the reference has labels, the accuracy of the last window is estimated as well (assay accuracy says
    more). Labels and other columns beside live probabilities are left out; where no name tells them apart,
    options follow the path: `live.csv?label=-1`, `live.parquet?columns=p_cat,p_dog`.

    Exit status: 0 quiet, 1 alarm, 2 wrong use, 3 cannot decide (no full window, or nothing to compare with).

    Example: `assay volatility live.csv --reference clean.csv --window 500`
    """
    import assay

    settings = {"window": window, "false_alarm_rate": false_alarm_rate, "block": block}
    chosen: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
    if watch and watch.is_file():
        watched: VolatilityWatch = assay.load(watch, kind="VolatilityWatch")
        _expect_agreement(watched, watch, chosen, reference, seed)
    elif reference is None:
        _print_log_vc(source, as_json)
        raise typer.Exit(UNDECIDED)
    else:
        watched = assay.VolatilityWatch(**chosen).calibrate(_read_all(reference), seed=seed or 0)
    answers = None if reference is None else _answers(reference, watched.window)
    state, alarms = watched.state_now(), set[str]()
    for chunk in _chunks(source):
        _expect_classes(chunk, watched, source)
        state = watched.update(chunk)
        alarms.update(state.alarms)
        _ask(answers, chunk)
        if stop and alarms:
            break
    state = replace(state, alarms=tuple(sorted(alarms)))
    if watch:
        assay.save(watched, watch)
    status = ALARM if alarms else FINE if state.full else UNDECIDED
    if plot:
        write_figure(watched.plot(), plot)
    if report:
        assay.write_report([watched, *_parts(answers)], report, origin=origin())
    _print_result(watched, state, status, answers, as_json)
    raise typer.Exit(status)


def _expect_agreement(
    watch: "VolatilityWatch", path: Path, chosen: dict[str, Any], reference: str | None, seed: int | None
) -> None:
    """A saved watch keeps its settings and its reference; refuse options that would have no effect."""
    for name, value in chosen.items():
        if value != getattr(watch, name):
            option = f"--{name.replace('_', '-')}"
            raise InputError(
                f"expected {option} {getattr(watch, name)}, which the watch in {path} was started with, got "
                f"{value}; leave {option} out, or start a watch in another file"
            )
    if reference is None and seed is not None:
        raise InputError(
            f"expected no --seed without --reference, since the watch in {path} is already calibrated, got "
            f"{seed}; leave it out"
        )
    if reference is not None and not watch.is_calibrated_on(_read_all(reference), seed=seed):
        raise InputError(
            f"expected the clean rows and the seed that the watch in {path} was calibrated with, got others "
            f"in {reference}; leave --reference and --seed out, or start a watch in another file"
        )


def _answers(reference: str, window: int) -> "AccuracyWindows | None":
    """Answers about accuracy, window by window, where the reference has labels and enough rows."""
    from assay import AccuracyEstimator
    from assay.accuracy.estimator import FEWEST_WINDOW_ROWS
    from assay.cli.live_rows import labelled_predictions_at
    from assay.cli.network_reference import note
    from assay.operation import AccuracyWindows

    try:
        clean = labelled_predictions_at(reference)
        if clean is None or min(len(clean), window) < FEWEST_WINDOW_ROWS:
            return None
        return AccuracyWindows(AccuracyEstimator(window=min(window, len(clean))).fit(clean), window)
    except InputError as error:  # the watch itself needs no labels
        note(f"accuracy is not estimated: {error}", reference)
        return None


def _ask(answers: "AccuracyWindows | None", rows: "Array") -> None:
    """Add rows to the answers; bad rows say nothing about accuracy, and the watch counts them."""
    from assay import Trace
    from assay.probability_rows import bad_rows

    if answers is not None and len(good := rows[~bad_rows(rows)]):
        answers.update(Trace.from_probabilities(good))


def _parts(answers: "AccuracyWindows | None") -> list[Any]:
    return [] if answers is None or answers.estimates is None else [answers.estimates, answers.history]


def _expect_classes(rows: "Array", watch: "VolatilityWatch", source: str) -> None:
    if rows.shape[1] != watch.classes_:
        raise InputError(
            f"expected probabilities of {watch.classes_} classes as in the reference, got "
            f"{rows.shape[1]} in {source}; pass predictions of the same network"
        )


def _chunks(source: str) -> Iterator["Array"]:
    """Tables of probabilities from a source whose options may follow it."""
    from assay.volatility.probability_files import probability_chunks

    path, options = predictions_and_options(source, probability_chunks)
    with errors_in_path_syntax(path):
        yield from probability_chunks(path, **options)


def _read_all(source: str) -> "Array":
    import numpy as np

    chunks = list(_chunks(source))
    if not chunks:
        raise InputError(f"expected probabilities in {source}, got none; check the file")
    return np.concatenate(chunks)


def _print_log_vc(source: str, as_json: bool) -> None:
    """Without a reference: only the number."""
    from assay.volatility import log_volatility
    from assay.volatility.certainty import FEWEST

    rows = _read_all(source)
    count = len(rows)
    log_vc = log_volatility(rows) if count >= FEWEST else None
    if as_json:
        print_json({"rows": count, "log_vc": log_vc, "status": "undecided"})
        return
    print(f"{count:,} predictions" + ("" if log_vc is None else f", log VC {log_vc:.4f}"))
    print("cannot decide: nothing to compare with; pass --reference with clean probabilities")


def _print_result(
    watch: "VolatilityWatch",
    last: "VolatilityState",
    status: int,
    answers: "AccuracyWindows | None",
    as_json: bool,
) -> None:
    headline = None if answers is None or answers.estimates is None else answers.estimates.headline
    if as_json:
        facts = {
            "rows": watch.rows_,
            "bad_rows": watch.bad_rows_,
            "log_vc": last.log_vc if last.full else None,
            "p_value": last.p_value if last.full else None,
            "reference_log_vc": watch.reference.mean,
            "reference_certainty": watch.reference.certainty,
            "evidence": last.evidence,
            "direction": last.direction or None,
            "alarms": list(last.alarms),
            "status": {FINE: "quiet", ALARM: "alarm", UNDECIDED: "undecided"}[status],
            "windows": watch.to_frame().to_dict(orient="records"),
            "accuracy": None if headline is None else without_nan(vars(headline)),
        }
        print_json(facts)
        return
    frame = watch.to_frame()
    if len(frame):
        print(
            frame.to_string(
                index=False,
                float_format="{:.3f}".format,
                formatters={"p_value": "{:.3g}".format},
            )
        )
    print(watch.summary(last))
    if answers is not None and answers.estimates is not None:
        print(f"The last window: {answers.estimates.answer()}")
    if status == UNDECIDED:
        print("cannot decide: fewer rows than one window; pass more rows or a smaller --window")
