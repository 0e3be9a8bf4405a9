"""Saved predictions: probabilities, with or without labels, from csv, tsv, parquet, npz and npy files."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from assay.data.delimited import read_table
from assay.data.labelled import numbered
from assay.data.memory import expect_room
from assay.data.npz import LABELS, array_named, member_bytes, open_arrays
from assay.data.place import existing_file
from assay.data.prediction_columns import TABLES, PredictionColumns, are_names
from assay.errors import InputError, MissingLabelsError
from assay.extras import expect_installed
from assay.probability_rows import Array, bad_rows, both_classes, class_rows, expect_probabilities, numbers


class SavedPredictions(tuple[Array, Tensor | None]):
    """The pair (probabilities, labels); labels are None where the file has none.

    `classes` are the names of the classes in the order of the columns, or None where columns have no names.
    `assay.Trace.from_probabilities(*saved)` makes a Trace of it.
    """

    classes: tuple[str, ...] | None

    def __new__(
        cls, probabilities: Array, labels: Tensor | None, classes: Sequence[str] | None = None
    ) -> "SavedPredictions":
        pair = super().__new__(cls, (probabilities, labels))
        pair.classes = None if classes is None else tuple(classes)
        return pair

    @property
    def probabilities(self) -> Array:
        return self[0]

    @property
    def labels(self) -> Tensor | None:
        return self[1]


def read_probabilities(
    path: str | PathLike[str],
    label: str | int | None = None,
    *,
    columns: Sequence[str | int] | None = None,
    header: bool | None = None,
    separator: str | None = None,
    classes: Sequence[str] | None = None,
) -> SavedPredictions:
    """(probabilities, labels) that a network gave earlier, from a csv, tsv, parquet, npz or npy file.

    A table has a column per class, in the order of the classes, and may have a column of labels: the one
    called label, labels, class, target or y, or `label`, a name or position. `columns` names the columns of
    probabilities where others are there besides. Labels are class numbers, or the names of the columns, or
    names in the order of `classes`. One column of probabilities is that of the second of two classes. Of an
    npz file, the array called probabilities, probs or scores is read, and the one of labels, if there is one.
    `header` says whether the first line names the columns, where that cannot be seen.
    """
    file = existing_file(path)
    kind = Path(file.name.removesuffix(".gz")).suffix.lower()
    if kind in (".npz", ".npy"):
        return _from_arrays(file, label)
    if kind == ".parquet":
        frame = read_parquet(file)
    elif kind in (".csv", ".tsv"):
        if header is None:
            first = read_table(file, header=False, separator=separator, rows=1, dtype=str)
            header = are_names(first.iloc[0].tolist())
        frame = read_table(file, header=header, separator=separator)
    else:
        raise InputError(
            f"{file}: expected saved predictions as csv, tsv, parquet, npz or npy, got another kind; convert "
            "it, or load a saved Trace with assay.load"
        )
    found = PredictionColumns.of(list(frame.columns), label, columns, file)
    rows = _checked(frame_values(frame, found), file)
    labels = None if found.label is None else found.labels(frame.iloc[:, found.label], classes, file)
    named = header is not False and rows.shape[1] == len(found.classes)
    return SavedPredictions(rows, labels, classes or (found.classes if named else None))


def read_parquet(file: Path) -> pd.DataFrame:
    """The whole table; refused before it is read where it does not fit into memory."""
    metadata = parquet_file(file).metadata
    expect_room(
        sum(metadata.row_group(part).total_byte_size for part in range(metadata.num_row_groups)), file
    )
    return pd.read_parquet(file)


def parquet_file(file: Path) -> Any:
    """The open file, of which nothing is read but its end."""
    expect_installed("pyarrow")
    import pyarrow
    from pyarrow import parquet

    try:
        return parquet.ParquetFile(file)
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise InputError(f"{file}: cannot be read as parquet ({error}); save it again") from error


def frame_values(frame: pd.DataFrame, found: PredictionColumns) -> Any:
    """The numbers in the columns of probabilities, unchecked; a column of lists is a table of its own."""
    chosen = frame.iloc[:, list(found.probabilities)]
    if chosen.shape[1] == 1 and len(chosen) and isinstance(chosen.iat[0, 0], list | np.ndarray):
        return np.array([list(row) for row in chosen.iloc[:, 0]])
    return chosen.to_numpy()


def refuse_labels(table: Array, source: object) -> None:
    """An error where rows are probabilities but for their last number, a label: no name tells what it is."""
    if table.ndim != 2 or table.shape[1] < 3 or not bad_rows(table).any():
        return
    last = table[:, -1]
    if (last == last.round()).all() and not bad_rows(table[:, :-1]).any():
        raise InputError(
            f"{source}: expected rows of probabilities, got rows that add up to 1 without their last number, "
            "which seems to be a label; pass label=-1"
        )


def _checked(values: Any, file: Path) -> Array:
    rows = numbers(values)
    refuse_labels(rows, file)
    try:
        return expect_probabilities(class_rows(both_classes(rows)))
    except InputError as error:
        raise InputError(f"{file}: {error}, or name the columns of probabilities with columns=") from error


def read_probability_array(file: Path) -> Array:
    """The array of probabilities in an npz or npy file, unchecked."""
    return numbers(_arrays(existing_file(file), None)[0])


def _from_arrays(file: Path, label: str | int | None) -> SavedPredictions:
    values, labels = _arrays(file, None if label is None else str(label))
    rows = _checked(values, file)
    return SavedPredictions(rows, None if labels is None else numbered(labels, len(rows), file))


def _arrays(file: Path, label: str | None) -> tuple[Any, Any]:
    """The array of probabilities, and that of labels or None."""
    with open_arrays(file) as arrays:
        if isinstance(arrays, np.ndarray):
            return arrays, None
        name = probabilities_name(arrays.files, file)
        expect_room(member_bytes(arrays.zip, name), file)
        try:
            return arrays[name], arrays[array_named(label, LABELS, None, arrays.files, "labels", file)]
        except MissingLabelsError:
            return arrays[name], None


def probabilities_name(there: Sequence[str], file: Path) -> str:
    """The array to take: the one there is besides labels, or the one called so."""
    names = [name for name in TABLES if name in there] or [name for name in there if name not in LABELS]
    if len(names) != 1 and (not names or names[0] not in TABLES):
        raise InputError(
            f"{file}: expected one array or one named {TABLES[0]!r}, got {sorted(there)}; "
            f"save them with numpy.savez(path, {TABLES[0]}=...)"
        )
    return names[0]
