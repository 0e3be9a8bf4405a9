"""csv tables of numbers with one column of labels."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from assay.data.delimited import LABEL_NAMES, column_of, read_table
from assay.data.labelled import Labelled, from_column
from assay.errors import InputError


def read_csv(
    path: str | PathLike[str],
    label: str | int | None = None,
    *,
    header: bool = True,
    separator: str | None = None,
    classes: Sequence[str] | None = None,
) -> Labelled[Tensor]:
    """(inputs, labels) from a table of numbers: inputs (N, D) float32, in the order of the columns.

    `label` is the name or position of the label column (-1 is the last); the default is the column called
    label, labels, class, target or y. Labels are class numbers from 0, or names, which are numbered in sorted
    order or in the order of `classes`, and kept in `.classes`. Every other cell must be a finite number.
    """
    file = Path(path)
    head = read_table(path, header=header, separator=separator, rows=1)
    name = column_of(head, label, LABEL_NAMES, "label", file)
    frame = read_table(path, header=header, separator=separator, dtype={name: str})
    labels, names = from_column(frame.pop(name), classes, file)
    return Labelled(_numbers(frame, file), labels, names, in_sorted_order=classes is None)


def csv_inputs(path: str | PathLike[str], *, header: bool = True, separator: str | None = None) -> Tensor:
    """The inputs of `read_csv` alone; a label column with a usual name is ignored."""
    frame = read_table(path, header=header, separator=separator)
    labels = [name for name in frame.columns if str(name).strip().lower() in LABEL_NAMES]
    return _numbers(frame.drop(columns=labels), Path(path))


def _numbers(frame: pd.DataFrame, file: Path) -> Tensor:
    """(N, D) float32, in the order of the columns."""
    if not len(frame.columns):
        raise InputError(
            f"{file}: expected columns of numbers besides the labels, got none; check separator="
        )
    _refuse_text(frame, file)
    with np.errstate(over="ignore"):  # numbers beyond single precision become infinite and are refused below
        values = frame.to_numpy(np.float32)
    if not np.isfinite(values).all():
        row, column = np.argwhere(~np.isfinite(values))[0]
        raise InputError(_bad_cell(frame, int(row), int(column), file))
    return torch.from_numpy(np.require(values, requirements=["C", "W"]))


def _refuse_text(frame: pd.DataFrame, file: Path) -> None:
    for place, name in enumerate(frame.columns):
        if not pd.api.types.is_numeric_dtype(frame[name]):
            wrong = pd.to_numeric(frame[name], errors="coerce").isna().to_numpy()
            raise InputError(_bad_cell(frame, int(np.argmax(wrong)), place, file))


def _bad_cell(frame: pd.DataFrame, row: int, column: int, file: Path) -> str:
    return (
        f"{file}: expected a finite number in row {row + 1} of column {frame.columns[column]!r}, got "
        f"{str(frame.iat[row, column])!r}; fill or drop such cells (rows of data are counted from 1)"
    )
