"""Progress for a person at a terminal, silence elsewhere."""

import sys
import threading
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

T = TypeVar("T")

_bar = threading.local()


def progress(items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
    """The same items; on a terminal, a bar with the time left that vanishes when done.

    One bar at a time: what runs within a loop that shows its progress shows none of its own.

    >>> list(progress([1, 2], "counting"))
    [1, 2]
    """
    if not sys.stderr.isatty() or getattr(_bar, "shown", False):
        yield from items
        return
    from rich.console import Console
    from rich.progress import Progress

    length = len(items) if isinstance(items, Sized) else None
    # What is printed meanwhile goes above the bar, unless it goes to a file or a pipe.
    bar = Progress(console=Console(stderr=True), transient=True, redirect_stdout=sys.stdout.isatty())
    _bar.shown = True
    try:
        with bar:
            yield from bar.track(items, total or length, description=description)
    finally:
        _bar.shown = False
