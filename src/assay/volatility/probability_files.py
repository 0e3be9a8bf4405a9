"""Probabilities from files and pipes: csv, parquet, npz, npy, a saved Trace, or JSON lines."""

import csv
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from assay.data.prediction_columns import TABLES, PredictionColumns, are_names
from assay.data.saved_predictions import frame_values, parquet_file, read_probability_array, refuse_labels
from assay.errors import InputError
from assay.probability_rows import Array, both_classes, class_rows, numbers
from assay.storage import load
from assay.volatility.probabilities import as_rows

CHUNK = 4096
"""Lines of a file that are read at a time."""
LIVE = 100
"""Lines of standard input that are read at a time: the evidence of a watch moves no more often."""

Parse = Callable[[str], list[float] | None]


def probability_chunks(
    source: str,
    *,
    label: str | int | None = None,
    columns: Sequence[str] | None = None,
    header: bool | None = None,
    separator: str | None = None,
) -> Iterator[Array]:
    """Tables of probabilities, in order; `-` reads standard input as csv or JSON lines.

    A line that cannot be read becomes a row of NaN, which a watch counts as a bad row. A csv file may have a
    header and may be separated by commas, semicolons, tabs or spaces. Labels and other columns are left out,
    as `assay.data.read_probabilities` does, which explains the options.
    """
    layout = Layout(label, columns, header, separator)
    if source == "-":
        yield from _lines(sys.stdin, Path("standard input"), LIVE, layout)
        return
    path = Path(source)
    if not path.is_file():
        raise InputError(f"expected a file of probabilities at {path}, found none; check the path, or pass -")
    match path.suffix.lower():
        case ".safetensors":
            yield as_rows(load(path, kind="Trace"))
        case ".npz" | ".npy":
            yield class_rows(both_classes(read_probability_array(path)))
        case ".parquet":
            yield from _batches(path, layout)
        case _:
            with path.open(encoding="utf-8", errors="replace") as file:
                yield from _lines(file, path, CHUNK, layout)


class Layout:
    """Where in a line of a table the probabilities are."""

    def __init__(
        self,
        label: str | int | None,
        columns: Sequence[str] | None,
        header: bool | None,
        separator: str | None,
    ) -> None:
        self.label = label
        self.columns = columns
        self.header = header
        self.separator = separator

    def parser(self, first: str, source: Path) -> tuple[Parse, bool]:
        """What reads the numbers of a line, and whether the first line has names instead."""
        separator = self.separator or next((mark for mark in "\t;," if mark in first), " ")
        names = _cells(first, separator)
        has_names = are_names(names) if self.header is None else self.header
        if not has_names and self.label is None and self.columns is None:
            return _numbers, False
        named = names if has_names else range(len(names))
        found = PredictionColumns.of(named, self.label, self.columns, source)

        def parse(line: str) -> list[float] | None:
            cells = _cells(line, separator)
            try:
                whole = len(cells) == len(names)
                return [float(cells[place]) for place in found.probabilities] if whole else None
            except ValueError:
                return None

        return parse, has_names


def _batches(path: Path, layout: Layout) -> Iterator[Array]:
    file = parquet_file(path)
    found = PredictionColumns.of(file.schema_arrow.names, layout.label, layout.columns, path)
    for batch in file.iter_batches(CHUNK):
        yield class_rows(both_classes(numbers(frame_values(batch.to_pandas(), found))))


def _lines(file: Any, source: Path, chunk_lines: int, layout: Layout) -> Iterator[Array]:
    lines: Iterator[str] = (line for line in file if line.strip())
    first = next(lines, None)
    if first is None:
        return
    parse, has_names = (_json, False) if first.lstrip()[0] in "[{" else layout.parser(first, source)
    if has_names:
        first = next(lines, None)
        if first is None:
            return
    row = parse(first)
    if not row:
        raise InputError(
            f"{source}: expected rows of probabilities, got {first.strip()[:60]!r}; "
            "write numbers separated by commas, or a JSON list, one prediction per line"
        )
    lines, unseen = itertools.chain([first], lines), True
    while chunk := list(itertools.islice(lines, chunk_lines)):
        table = _table(chunk, parse, len(row))
        if unseen and parse is _numbers:
            refuse_labels(table, source)
        unseen = False
        yield class_rows(both_classes(table))


def _table(lines: list[str], parse: Parse, classes: int) -> Array:
    bad = [float("nan")] * classes
    rows = (parse(line) for line in lines)
    return np.array([row if row is not None and len(row) == classes else bad for row in rows])


def _cells(line: str, separator: str) -> list[str]:
    """The cells of a line, quoted or not."""
    if separator == " ":
        return line.split()
    return [cell.strip() for cell in next(csv.reader([line.strip("\r\n")], delimiter=separator))]


def _numbers(line: str) -> list[float] | None:
    try:
        return [float(word) for word in line.replace(",", " ").replace(";", " ").split()]
    except ValueError:
        return None


def _json(line: str) -> list[float] | None:
    try:
        found = json.loads(line)
        if isinstance(found, dict):
            found = next(found[name] for name in TABLES if name in found)
        return [float(value) for value in found]
    except (ValueError, TypeError, StopIteration):
        return None
