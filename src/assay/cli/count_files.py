"""Files of counts that devices sent: named one by one, as folders, as patterns or in a list; each once."""

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from assay.errors import InputError, StorageError

LIST = "@"
"""Marks a file with one name per line."""


def count_files(given: Sequence[str], but: Path | None = None) -> Iterator[str]:
    """The files that are meant, in the order given and sorted within a folder or pattern.

    A folder stands for all files below it, but for hidden ones and for `but`, the file to be written; a name
    with * ? or [ that is no file for all that match; @list.txt for the names in its lines.
    """
    written = None if but is None else but.resolve()
    for name in given:
        if name.startswith(LIST) and not os.path.exists(name):
            yield from count_files(_lines(name.removeprefix(LIST)), but)
        elif os.path.isdir(name):
            yield from _expect_some(name, (path for path in _below(name) if Path(path).resolve() != written))
        elif glob.has_magic(name) and not os.path.exists(name):
            found = (path for path in sorted(glob.iglob(name, recursive=True)) if os.path.isfile(path))
            yield from _expect_some(name, (path for path in found if Path(path).resolve() != written))
        else:
            yield name  # a missing file is named when it is read


def _below(folder: str) -> Iterator[str]:
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (os.path.join(place, name) for name in sorted(names) if not name.startswith("."))


def _lines(path: str) -> list[str]:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"expected a text file of names at {path}, got none that can be read ({error}); check the path"
        ) from error
    return _some(path, [line.strip() for line in text.splitlines() if line.strip()])


def _expect_some(name: str, paths: Iterator[str]) -> Iterator[str]:
    empty = True
    for path in paths:
        empty = False
        yield path
    if empty:
        _some(name, [])


def _some(name: str, found: list[str]) -> list[str]:
    if not found:
        raise InputError(f"expected files in {name}, found none; check the path")
    return found


def in_order_once(paths: Iterable[str]) -> tuple[list[str], dict[str, str]]:
    """The files in the order of their contents, each once, and what is wrong with those that are broken.

    So the order of the arguments makes no difference, not even to how sums of fractions are rounded. A file
    that is counted twice is refused, also under another name; of a file only the header is read.
    """
    from assay.storage import stored_digest

    known: list[tuple[str, str]] = []
    broken: dict[str, str] = {}
    for path in paths:
        try:
            known.append((stored_digest(path), path))
        except StorageError as error:
            broken[path] = str(error)
    known.sort()
    for (one, first), (other, second) in pairwise(known):
        if one == other and (first == second or _counts_something(second)):
            raise _repeated(first, second)
    return [path for _, path in known], broken


def check_each_once(files: Iterable[Path]) -> None:
    """Refuse a file that is counted twice; a broken one is named when it is read."""
    in_order_once(map(str, files))


def counted_rows(counted: Any) -> int:
    """How many inputs were counted."""
    import assay

    return int(counted.total if isinstance(counted, assay.Histogram) else getattr(counted, "rows", 1))


def _counts_something(path: str) -> bool:
    """Devices that have seen nothing yet have equal files, which change no sum."""
    import assay
    from assay.operation import WatchRecord

    found = assay.load(path)
    return isinstance(found, WatchRecord) or bool(counted_rows(found))


def _repeated(first: str, second: str) -> InputError:
    again = "it twice" if first == second else f"the same in {first} and in {second}"
    return InputError(f"expected {second} once, got {again}; pass the counts of each device once")
