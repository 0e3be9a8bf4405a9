"""Live and reference rows, counts and labels of a few rows, from files named on the command line."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.cli.path_options import errors_in_path_syntax, predictions_and_options
from assay.errors import InputError, MissingLabelsError

if TYPE_CHECKING:
    from assay import Network, RowsToLabel, Trace
    from assay.accuracy import PredictionCounts
    from assay.operation import WatchRecord

SAVED = ".safetensors"
TABLES = (".csv", ".tsv", ".parquet", ".npz")
"""Files that may have labels beside probabilities."""
LABEL_COLUMNS = ("row", "of", "probability", "guess", "label")
"""Of the csv file of rows to label: the row, of how many, its chance to be drawn, the guess, its label."""


@dataclass(frozen=True, eq=False)
class LiveRows:
    """What the network said about live rows, and the classes' names, where saved predictions have them."""

    trace: "Trace"
    classes: tuple[str, ...] | None = None


def counts_at(source: str) -> "PredictionCounts | None":
    """What devices counted, from PredictionCounts or the counts of a service; None for any other file."""
    import assay
    from assay.accuracy import PredictionCounts
    from assay.operation import WatchRecord

    if not source.endswith(SAVED) or not Path(source).is_file():
        return None
    found = assay.load(source)
    if isinstance(found, WatchRecord):
        return watched_counts(found, source)
    return found if isinstance(found, PredictionCounts) else None


def watched_counts(record: "WatchRecord", source: object) -> "PredictionCounts":
    """What a service or a Watch counted for the answer about accuracy."""
    if record.counts is None:
        raise InputError(
            f"expected counts for an estimate of accuracy in {source}, got none; give the service an "
            "estimator, and let it see a window"
        )
    return record.counts


def live_rows_at(source: str, network: "Network | None") -> LiveRows:
    """Live rows as a Trace; with a network, it observes them. Labels among them are not read."""
    from assay.cli.network_reference import data_or_inputs_at

    if source.endswith(SAVED):
        return LiveRows(_saved_trace(source))
    if network is None:
        saved = _saved_predictions(source)
        from assay import Trace

        return LiveRows(Trace.from_probabilities(saved.probabilities), saved.classes)
    data = data_or_inputs_at(source)
    inputs = data[0] if isinstance(data, tuple) else data
    return LiveRows(network.observe(inputs, keep_inputs=not network.embeds))


def reference_rows_at(source: str, network: "Network | None") -> Any:
    """The labelled reference as `assay.estimate_accuracy` takes it."""
    from assay.cli.network_reference import data_at

    if network is not None and not source.endswith(SAVED):
        return data_at(source)
    found: Any = _saved_trace(source) if source.endswith(SAVED) else _saved_predictions(source)
    if found.labels is None:
        raise MissingLabelsError(
            f"expected a reference with labels, got none in {source}; observe labelled data, or add a column "
            "called label"
        )
    return found


def labelled_predictions_at(source: str) -> "Trace | None":
    """A labelled Trace of saved predictions; None where they have no labels, or cannot be read as a whole."""
    from assay import Trace

    if source.endswith(SAVED):
        trace = _saved_trace(source)
        return None if trace.labels is None else trace
    if not source.partition("?")[0].removesuffix(".gz").endswith(TABLES):
        return None
    saved = _saved_predictions(source)
    return None if saved.labels is None else Trace.from_probabilities(*saved)


def reference_length(reference: Any) -> int:
    """The number of its rows."""
    labels = reference[1] if isinstance(reference, tuple) else reference.labels
    return len(labels)


def write_rows_to_label(drawn: "RowsToLabel", path: Path) -> None:
    """A csv file with a row per row to label, and an empty column for its label."""
    from assay.storage import write_text_whole

    frame = drawn.to_frame().assign(of=drawn.total, label="")
    write_text_whole(path, frame[list(LABEL_COLUMNS)].to_csv(index=False))


def few_labels_at(path: Path, total: int, classes: tuple[str, ...] | None) -> tuple[Any, Any]:
    """(rows drawn, labels) of a few of `total` live rows, from a csv file with columns row and label.

    With the columns of `write_rows_to_label` it is known how each row was drawn; without, rows count as drawn
    uniformly. Labels are class numbers, or names where the live rows have names.
    """
    from assay.data.labelled import from_column

    frame = _label_table(path)
    places = frame["row"].astype(float)
    if not (places == places.round()).all():
        raise InputError(f"{path}: expected whole numbers in the column row, got others; count rows from 0")
    rows = places.astype(int).to_numpy()
    numbers = frame["label"].str.fullmatch(r"\s*\d+(\.0*)?\s*").all()
    if not numbers and classes is None:
        raise InputError(
            f"{path}: expected class numbers in the column label, since the reference names no classes, "
            "got others; write the numbers of the outputs, from 0"
        )
    labels, _ = from_column(frame["label"], None if numbers else classes, path)
    if "probability" not in frame or "of" not in frame:
        return rows, labels
    return _drawn_rows(frame, rows, total, path), labels


def _label_table(path: Path) -> Any:
    """The table of labels as text, with a label in every row."""
    import pandas as pd

    from assay.data.place import existing_file

    try:
        frame = pd.read_csv(existing_file(path), dtype=str, keep_default_na=False)
    except (ValueError, OSError) as error:
        raise InputError(f"{path}: expected a csv file of labels, got another ({error})") from error
    if missing := [name for name in ("row", "label") if name not in frame]:
        raise InputError(
            f"{path}: expected columns called row and label, got {list(frame.columns)}; add {missing[0]}"
        )
    empty = frame["label"].str.strip() == ""
    if empty.any() or not len(frame):
        raise InputError(
            f"{path}: expected a label for each of {len(frame)} rows that were drawn, got "
            f"{int((~empty).sum())}; label all of them: leaving out difficult ones makes the accuracy look "
            "better"
        )
    try:
        numbers = [name for name in ("row", "of", "probability", "guess") if name in frame]
        return frame.astype(dict.fromkeys(numbers, float))
    except ValueError as error:
        raise InputError(
            f"{path}: expected numbers in the columns {numbers}, got others ({error}); leave them as written"
        ) from error


def _drawn_rows(frame: Any, rows: Any, total: int, path: Path) -> "RowsToLabel":
    import numpy as np

    from assay import RowsToLabel

    of = set(frame["of"].astype(int))
    if of != {total}:
        raise InputError(
            f"{path}: expected rows drawn from these {total} live rows, got rows drawn from "
            f"{sorted(of)[0]}; pass the live rows that they were drawn from"
        )
    probabilities = frame["probability"].to_numpy()
    if not ((probabilities > 0) & (probabilities <= 1)).all():
        raise InputError(f"{path}: expected probabilities above 0 and up to 1, got others; leave the column")
    guesses = frame["guess"].to_numpy() if "guess" in frame else np.full(len(rows), np.nan)
    return RowsToLabel(rows, probabilities, guesses, total)


def _saved_trace(source: str) -> "Trace":
    import assay

    trace: Trace = assay.load(source, kind="Trace")
    return trace


def _saved_predictions(source: str) -> Any:
    from assay.data import read_probabilities

    path, options = predictions_and_options(source, read_probabilities)
    with errors_in_path_syntax(path):
        return read_probabilities(path, **options)
