"""A progress bar on a terminal and in a notebook; nothing elsewhere."""

import sys
import threading
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

from assay.engine.notebook_bar import in_notebook, notebook_progress

T = TypeVar("T")

_bar = threading.local()


def progress(items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
    """The same items; on a terminal or in a notebook, with a bar that shows the time left.

    There is one bar at a time: loops inside a loop with a bar show none. Neither does a loop over one item: a
    guarded call on a single input would take many times as long.

    >>> list(progress([1, 2], "counting"))
    [1, 2]
    """
    length = total or (len(items) if isinstance(items, Sized) else None)
    notebook = in_notebook()
    if total == 1 or not (notebook or sys.stderr.isatty()) or getattr(_bar, "shown", False):
        yield from items
        return
    drawn = notebook_progress if notebook else _terminal_progress
    _bar.shown = True
    try:
        yield from drawn(items, description, length)
    finally:
        _bar.shown = False


def _terminal_progress(items: Iterable[T], description: str, total: int | None) -> Iterator[T]:
    from rich.console import Console
    from rich.progress import Progress

    # Text printed meanwhile appears above the bar, unless it goes to a file or a pipe.
    bar = Progress(console=Console(stderr=True), transient=True, redirect_stdout=sys.stdout.isatty())
    with bar:
        yield from bar.track(items, total, description=description)
