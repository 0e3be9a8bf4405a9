"""Tables in csv and tsv files, for csv.py (numbers) and text.py (texts)."""

import csv
import gzip
import warnings
import zlib
from collections.abc import Iterable
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from assay.data.memory import MOST_UNPACKED, expect_room, free_memory
from assay.data.place import existing_file
from assay.errors import InputError, MissingLabelsError

NUMBER_CELL, TEXT_CELL = 16, 64
"""Bytes of memory that a cell takes besides its characters, as measured."""

LABEL_NAMES = ("label", "labels", "class", "target", "y")


def read_table(
    path: str | PathLike[str],
    *,
    header: bool,
    separator: str | None,
    quoted: bool | None = None,
    rows: int | None = None,
    dtype: Any = None,
) -> pd.DataFrame:
    """The file as a frame; no cell is read as missing, so "NA" and "" stay as they are.

    `separator` defaults to a tab if the name ends in .tsv, otherwise to a comma; `quoted` is whether double
    quotes enclose cells, by default true in csv files and false in tsv files.
    """
    file = existing_file(path)
    is_tsv = ".tsv" in file.suffixes
    separator = separator or ("\t" if is_tsv else ",")
    quoting: Any = csv.QUOTE_MINIMAL if (not is_tsv if quoted is None else quoted) else csv.QUOTE_NONE
    try:
        _check_memory(file, separator, dtype is str)
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame: pd.DataFrame = pd.read_csv(
                file,
                sep=separator,
                header=0 if header else None,
                index_col=False,
                na_filter=False,
                low_memory=False,
                quoting=quoting,
                nrows=rows,
                dtype=dtype,
                compression="gzip" if file.suffix == ".gz" else None,
            )
    except InputError:
        raise
    except (ValueError, OSError, EOFError, zlib.error, pd.errors.ParserWarning) as error:
        reason = str(error).strip().removeprefix("Error tokenizing data. C error: ")
        raise InputError(
            f"{file}: cannot be read as a table separated by {separator!r} ({reason}); "
            "correct the file, or pass header= or separator="
        ) from error
    if not len(frame) and rows is None:
        raise InputError(
            f"{file}: expected rows of data, got none; a file without column names needs header=False"
        )
    return frame


def _check_memory(file: Path, separator: str, is_text: bool) -> None:
    """Refuse a table whose text and cells do not fit into memory."""
    about = file.stat()
    cell = TEXT_CELL if is_text else NUMBER_CELL
    largest = about.st_size * (MOST_UNPACKED if file.suffix == ".gz" else 1)
    if largest * (1 + cell) > free_memory():  # otherwise it fits even if every character is a separator
        size, cells = _table_size(file, separator, about.st_mtime_ns, about.st_size)
        expect_room(size + cell * cells, file)


@lru_cache(maxsize=8)
def _table_size(file: Path, separator: str, *_: int) -> tuple[int, int]:
    """Bytes and cells of the unpacked file, counted until memory would run out; cached until the file
    changes."""
    size = cells = 0
    with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
        while part := stream.read(2**20):
            size += len(part)
            cells += part.count(separator.encode()) + part.count(b"\n")
            expect_room(size + NUMBER_CELL * cells, file)
    return size, cells


def column_of(
    frame: pd.DataFrame, asked: str | int | None, usual: Iterable[str], role: str, source: Path
) -> Any:
    """The column asked for by name or position, or else the one with a usual name."""
    columns = list(frame.columns)
    if isinstance(asked, int) and -len(columns) <= asked < len(columns):
        return columns[asked]
    if isinstance(asked, str) and asked in columns:
        return asked
    if asked is None:
        folded = {str(name).strip().lower(): name for name in reversed(columns)}
        for name in usual:
            if name in folded:
                return folded[name]
    wanted = f"a column {asked!r}" if asked is not None else f"a {role} column under a usual name"
    shown = columns if len(columns) <= 12 else [*columns[:6], "...", *columns[-3:]]
    raise (MissingLabelsError if role == "label" and asked is None else InputError)(
        f"{source}: expected {wanted}, got the columns {shown}; pass {role}= with a name or a position"
    )
