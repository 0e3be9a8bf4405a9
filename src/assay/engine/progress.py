"""A progress bar on a terminal; nothing elsewhere."""

import sys
import threading
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

T = TypeVar("T")

_bar = threading.local()


def progress(items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
    """The same items; on a terminal, with a bar that shows the time left and disappears at the end.

    There is one bar at a time: loops inside a loop with a bar show none. Neither does a loop over one item: a
    guarded call on a single input would take many times as long.

    >>> list(progress([1, 2], "counting"))
    [1, 2]
    """
    if total == 1 or not sys.stderr.isatty() or getattr(_bar, "shown", False):
        yield from items
        return
    from rich.console import Console
    from rich.progress import Progress

    length = len(items) if isinstance(items, Sized) else None
    # Text printed meanwhile appears above the bar, unless it goes to a file or a pipe.
    bar = Progress(console=Console(stderr=True), transient=True, redirect_stdout=sys.stdout.isatty())
    _bar.shown = True
    try:
        with bar:
            yield from bar.track(items, total or length, description=description)
    finally:
        _bar.shown = False
