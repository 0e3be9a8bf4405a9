"""Probabilities from files and pipes: csv, npz, npy, a saved Trace, or one JSON line per prediction."""

import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from assay.data.npz import chosen_array
from assay.errors import InputError
from assay.storage import expect_readable, load
from assay.volatility.probabilities import Array, as_rows

CHUNK = 4096
"""Lines of a file that are read at a time."""
LIVE = 100
"""Lines of standard input that are read at a time: the evidence of a watch moves no more often."""
NAMES = ("probabilities", "probs", "scores")
"""Names of probabilities in npz files and JSON objects."""


def probability_chunks(source: str) -> Iterator[Array]:
    """Tables of probabilities, in order; `-` reads standard input as csv or JSON lines.

    A line that cannot be read becomes a row of NaN, which a watch counts as a bad row. A csv file
    may have a header and may be separated by commas, semicolons, tabs or spaces.
    """
    if source == "-":
        yield from _lines(sys.stdin, "standard input", LIVE)
        return
    path = Path(source)
    if not path.is_file():
        raise InputError(f"expected a file of probabilities at {path}, found none; check the path, or pass -")
    expect_readable(path)
    if path.suffix == ".safetensors":
        yield as_rows(load(path, kind="Trace"))
    elif path.suffix in (".npz", ".npy"):
        yield as_rows(chosen_array(path, lambda there: _probabilities(there, path)))
    else:
        with path.open(encoding="utf-8", errors="replace") as file:
            yield from _lines(file, str(path), CHUNK)


def _probabilities(there: list[str], path: Path) -> str:
    """The name of the array to take: the one there is, or the one called so."""
    names = [name for name in NAMES if name in there] or there
    if len(names) != 1 and (not names or names[0] not in NAMES):
        raise InputError(
            f"{path}: expected one array or one named {NAMES[0]!r}, got {sorted(there)}; "
            f"save them with numpy.savez(path, {NAMES[0]}=...)"
        )
    return names[0]


def _lines(file: Any, source: str, chunk_lines: int) -> Iterator[Array]:
    lines: Iterator[str] = (line for line in file if line.strip())
    first = next(lines, None)
    if first is None:
        return
    parse = _json if first.lstrip()[0] in "[{" else _numbers
    row = parse(first)
    if row is None and parse is _numbers:  # a header
        first = next(lines, None)
        row = None if first is None else parse(first)
    if first is None:
        return
    if row is None:
        raise InputError(
            f"{source}: expected rows of probabilities, got {first.strip()[:60]!r}; "
            "write numbers separated by commas, or a JSON list, one prediction per line"
        )
    lines = itertools.chain([first], lines)
    while chunk := list(itertools.islice(lines, chunk_lines)):
        yield as_rows(_table(chunk, parse, len(row)))


def _table(lines: list[str], parse: Any, classes: int) -> Array:
    bad = [float("nan")] * classes
    rows = (parse(line) for line in lines)
    return np.array([row if row is not None and len(row) == classes else bad for row in rows])


def _numbers(line: str) -> list[float] | None:
    try:
        return [float(word) for word in line.replace(",", " ").replace(";", " ").split()]
    except ValueError:
        return None


def _json(line: str) -> list[float] | None:
    try:
        found = json.loads(line)
        if isinstance(found, dict):
            found = next(found[name] for name in NAMES if name in found)
        return [float(value) for value in found]
    except (ValueError, TypeError, StopIteration):
        return None
