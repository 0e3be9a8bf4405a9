"""Progress for a person at a terminal, silence elsewhere."""

import sys
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

T = TypeVar("T")


def progress(items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
    """The same items; on a terminal, a bar with the time left that vanishes when done.

    >>> list(progress([1, 2], "counting"))
    [1, 2]
    """
    if not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import track

    length = len(items) if isinstance(items, Sized) else None
    yield from track(items, description, total=total or length, console=Console(stderr=True), transient=True)
