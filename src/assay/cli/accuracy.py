"""`assay accuracy`: the accuracy in operation, without labels or with a few; the exit status says how."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.json_output import print_json
from assay.cli.options import ForMachines, Report, Seed, within, without_nan
from assay.cli.origin import origin
from assay.cli.places import Written, write_figure
from assay.cli.status import ALARM, FINE, UNDECIDED, leave_by_gate
from assay.errors import InputError

if TYPE_CHECKING:
    from assay import AccuracyEstimator, Network, Trace
    from assay.accuracy import AccuracyEstimates
    from assay.operation import AccuracyHistory

Live = Annotated[
    str,
    typer.Argument(
        help="What the network sees now: data, with --network; or a saved Trace, or probabilities (csv, "
        "parquet, npz); or counts of devices, with --estimator."
    ),
]
LabelledReference = Annotated[
    str | None,
    typer.Option(
        help="Labelled data that the network was not trained on, with --network; or a Trace or probabilities "
        "with labels."
    ),
]
NetworkOption = Annotated[
    str | None,
    typer.Option(help="module:factory that returns the network, or an .onnx file: faults then teach."),
]
LabelsFile = Annotated[
    Path | None,
    typer.Option(help="Labels of a few live rows: the csv of --to-label, filled in, or columns row, label."),
]
EstimatorFile = Annotated[
    Path | None,
    typer.Option(help="The fitted estimator: used if it exists, else written; for assay serve, too."),
    Written(kept=True),
]
LessonFolder = Annotated[
    Path | None,
    typer.Option(help="A folder that keeps what faults did to the network, for the next run."),
    Written(folder=True, kept=True),
]
Window = Annotated[
    int | None, typer.Option(help="An answer after every so many rows.", callback=within(1, math.inf))
]
Least = Annotated[
    float | None, typer.Option(help="Gate on the interval of the accuracy.", callback=within(0, 1))
]
ToLabel = Annotated[
    int | None,
    typer.Option(help="Draw so many rows to label, write them to --output (csv), and stop."),
]
Level = Annotated[float, typer.Option(help="Probability with which the interval holds.")]
Layer = Annotated[list[str] | None, typer.Option(help="A layer to watch; may be repeated, or `none`.")]
Output = Annotated[
    Path | None, typer.Option(help="Where the result goes; with --to-label, the rows to label."), Written()
]
Plot = Annotated[
    Path | None, typer.Option(help="File to save the figure to (png, svg or pdf)."), Written(figure=True)
]


@dataclass(frozen=True)
class Asked:
    """What was asked for, beside the rows."""

    network: "Network | None"
    estimator: Path | None
    folder: Path | None
    level: float
    seed: int


def accuracy(
    live: Live,
    reference: LabelledReference = None,
    network: NetworkOption = None,
    layer: Layer = None,
    labels: LabelsFile = None,
    estimator: EstimatorFile = None,
    folder: LessonFolder = None,
    window: Window = None,
    least: Least = None,
    level: Level = 0.95,
    to_label: ToLabel = None,
    output: Output = None,
    plot: Plot = None,
    report: Report = None,
    seed: Seed = 0,
    as_json: ForMachines = False,
) -> None:
    """Say what the accuracy is now, with an interval, or that it cannot be told and why.

    With --network, faults of the fault library, made from the reference, teach what the network's answers
    mean. Without, the answer knows less. With --window the answer is about the last full window, and the
    ones before it are shown beside it.

    Exit status: 0 accuracy holds (with --least: it is above that), 1 it has fallen (it is below that), 2
    wrong use, 3 cannot tell (the interval has --least inside).

    Example: `assay accuracy live.npz --reference test.npz --network my.models:trained --least 0.9`
    """
    import assay
    from assay.cli.network_reference import network_at
    from assay.statistics import check_level

    check_level(level)
    _check_options(reference, estimator, labels, window, to_label, output)
    if folder is not None and network is None:
        raise InputError(
            "expected --network beside --folder, got none; without a network there are no lessons"
        )
    layers = () if layer == ["none"] else tuple(layer or ["penultimate"])
    known = None if network is None else network_at(network, layers)
    if to_label is not None:
        assert output is not None
        _draw_rows(live, known, to_label, output, seed, as_json)
        return
    asked = Asked(known, estimator, folder, level, seed)
    found, history = _answer(live, reference, labels, window, asked)
    if output:
        assay.save(found, output)
    if plot:
        write_figure(found.plot() if history is None else history.plot(), plot)
    if report:
        _write_report(found, history, report)
    _print_result(found, history, as_json)
    _leave(found, least)


def _leave(found: "AccuracyEstimates", least: float | None) -> None:
    """With the status of the verdict, or of the gate."""
    from assay.accuracy.headline import AccuracyVerdict

    statuses = {AccuracyVerdict.HOLDS: FINE, AccuracyVerdict.FALLEN: ALARM}
    status = statuses.get(AccuracyVerdict(found.verdict), UNDECIDED)
    if least is None or status == UNDECIDED:
        raise typer.Exit(status)
    leave_by_gate("accuracy", (found.lower, found.upper), least)


def _check_options(
    reference: str | None,
    estimator: Path | None,
    labels: Path | None,
    window: int | None,
    to_label: int | None,
    output: Path | None,
) -> None:
    if to_label is not None:
        if output is None:
            raise InputError("expected --output with the csv file that the rows to label go to, got none")
        return
    if reference is None and not (estimator and estimator.is_file()):
        raise InputError(
            "expected --reference with labelled data to learn from, or --estimator with a file that has "
            "learned, got neither; pass one"
        )
    if labels and window:
        raise InputError(
            "expected --labels or --window, got both; labels were drawn from all rows, so leave --window out"
        )


def _answer(
    live: str, reference: str | None, labels: Path | None, window: int | None, asked: Asked
) -> "tuple[AccuracyEstimates, AccuracyHistory | None]":
    """The answer and, with a window, that about every window."""
    import assay
    from assay.accuracy.estimator import with_few_labels
    from assay.accuracy.few_labels import FewLabels
    from assay.accuracy.predictions import Predictions, expect_same_classes
    from assay.cli.live_rows import counts_at, few_labels_at, live_rows_at, reference_rows_at

    if counts := counts_at(live):
        return _answer_about_counts(counts, labels, window, asked), None
    rows = live_rows_at(live, asked.network)
    known = None if reference is None else reference_rows_at(reference, asked.network)
    if asked.network is None:
        expect_same_classes(known, rows)
    classes = getattr(known, "classes", None) or rows.classes
    drawn, found = (None, None) if labels is None else few_labels_at(labels, len(rows.trace), classes)
    if asked.estimator is None and window is None:
        assert known is not None
        settings: Any = {name: getattr(asked, name) for name in ("network", "folder", "level", "seed")}
        return assay.estimate_accuracy(known, rows.trace, labels=found, drawn=drawn, **settings), None
    fitted = _estimator(known, window, asked)
    if window is not None:
        return _answers_in_windows(fitted, rows.trace, live, window, asked.level)
    answer = fitted.estimate(fitted.count(rows.trace), asked.level)
    if found is not None:
        few = FewLabels.of(found, drawn, len(rows.trace))
        answer = with_few_labels(answer, few, Predictions.of(rows.trace), asked.seed)
    return answer, None


def _answer_about_counts(
    counts: Any, labels: Path | None, window: int | None, asked: Asked
) -> "AccuracyEstimates":
    """The answer about what devices counted."""
    if asked.estimator is None or not asked.estimator.is_file() or labels or window:
        raise InputError(
            "expected counts together with --estimator, the file that made them, and without --labels and "
            "--window, got other options; counts have no rows"
        )
    return _loaded(asked.estimator).estimate(counts, asked.level)


def _estimator(known: Any, window: int | None, asked: Asked) -> "AccuracyEstimator":
    """The estimator of the file, if there is one and it belongs here, or a new one, which goes there."""
    import assay
    from assay.cli.live_rows import reference_length

    if asked.estimator is not None and asked.estimator.is_file():
        found = _loaded(asked.estimator)
        _expect_same(found, known, asked)
        return found
    if asked.estimator is not None and asked.network is not None:
        asked.network.fingerprint  # noqa: B018  # nothing else says later which network was taught
    rows = None if window is None else min(window, reference_length(known))
    made = assay.AccuracyEstimator(window=rows, seed=asked.seed)
    made.fit(known, network=asked.network, folder=asked.folder)
    if asked.estimator is not None:
        assay.save(made, asked.estimator)
    return made


def _loaded(path: Path) -> "AccuracyEstimator":
    import assay

    found: AccuracyEstimator = assay.load(path, kind="accuracy.AccuracyEstimator")
    return found


def _expect_same(found: "AccuracyEstimator", known: Any, asked: Asked) -> None:
    """An estimator is never taken for that of another network or reference."""
    same = known is None or found.is_fitted_on(known, asked.network)
    if known is None and asked.network is not None and found.network_ is not None:
        same = found.network_ == asked.network.fingerprint
    if not same:
        raise InputError(
            f"expected {asked.estimator} to have learned from this reference and network, got an estimator "
            "that learned from others; name a new file, or leave --reference out if the network is the same"
        )


def _answers_in_windows(
    fitted: "AccuracyEstimator", trace: "Trace", live: str, window: int, level: float
) -> "tuple[AccuracyEstimates, AccuracyHistory]":
    from assay.cli.network_reference import note
    from assay.operation import AccuracyWindows

    windows = AccuracyWindows(fitted, window, level)
    windows.update(trace)
    if windows.estimates is None:
        raise InputError(
            f"expected at least one window of {window} live rows, got {len(trace)}; pass more rows or a "
            "smaller --window"
        )
    left = windows.waiting_rows
    note(f"the last {left:,} rows fill no window and were left out" if left else "", live)
    return windows.estimates, windows.history


def _draw_rows(
    live: str, network: "Network | None", budget: int, output: Path, seed: int, as_json: bool
) -> None:
    import assay
    from assay.cli.live_rows import live_rows_at, write_rows_to_label

    drawn = assay.rows_to_label(live_rows_at(live, network).trace, budget, seed=seed)
    write_rows_to_label(drawn, output)
    if as_json:
        print_json({"rows": drawn.rows.tolist(), "of": drawn.total, "output": str(output)})
        return
    print(drawn.summary())
    print(f"rows to label are in {output}; fill in its column label and pass it as --labels")


def _write_report(found: "AccuracyEstimates", history: "AccuracyHistory | None", path: Path) -> None:
    """The answer first, then its picture over time, then the methods."""
    import assay
    from assay.report import Section

    sections = [Section.of(found)]
    if history is not None:
        words = f"{found.summary()}\n\n{history.summary()}"
        sections = [
            Section("Accuracy over time", words, figures=[history.plot()], table=history.to_frame()),
            Section("Methods on the last window", figures=found.figures(), table=found.to_frame()),
        ]
    assay.write_report(sections, path, title="What is the accuracy now?", origin=origin())


def _print_result(found: "AccuracyEstimates", history: "AccuracyHistory | None", as_json: bool) -> None:
    if as_json:
        print_json(_facts(found, history))
        return
    columns = ["method", "value", "lower", "upper", "note"]
    if history is None:
        print(found.to_frame()[columns].to_string(index=False, float_format="{:.3f}".format, na_rep="-"))
    else:
        frame = history.to_frame().drop(columns="rows")
        print(frame.to_string(index=False, float_format="{:.3f}".format, na_rep="-"))
    print(found.summary())
    if found.value != found.value:
        print("to know it, label some rows: assay accuracy --to-label 50 draws them")


def _facts(found: "AccuracyEstimates", history: "AccuracyHistory | None") -> dict[str, Any]:
    """Everything as JSON, which has no NaN: null stands for it."""

    def records(frame: Any) -> Any:
        return json.loads(frame.to_json(orient="records", double_precision=15))

    return {
        **without_nan(vars(found.headline)),
        "rows": found.rows,
        "level": found.level,
        "reference_accuracy": found.reference_accuracy,
        "labelled_rows": None if found.labelled is None else found.labelled.labelled,
        "methods": records(found.to_frame()),
        "windows": [] if history is None else records(history.to_frame()),
    }
