"""A progress bar in a notebook: HTML that the browser draws, taken away at the end."""

import sys
import time
from collections.abc import Iterable, Iterator
from html import escape
from typing import Any, TypeVar

T = TypeVar("T")

SECONDS = 0.2
"""Between two updates: a browser needs no more."""


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")


def notebook_progress(items: Iterable[T], description: str, total: int | None) -> Iterator[T]:
    """The same items, with a bar in the output of the cell."""
    import IPython.display

    display: Any = IPython.display
    html = display.HTML
    shown = display.display(html(bar(description, 0, total)), display_id=True)
    start = last = time.monotonic()
    try:
        for count, item in enumerate(items, start=1):
            yield item
            if time.monotonic() - last >= SECONDS:
                last = time.monotonic()
                shown.update(html(bar(description, count, total, last - start)))
    finally:
        shown.update(html(""))


def bar(description: str, count: int, total: int | None, seconds: float = 0.0) -> str:
    """
    >>> bar("a <b>", 2, 8, 3.0)
    '<label>a &lt;b&gt; <progress value="2" max="8"></progress> 2 of 8, about 9 s left</label>'
    """
    if total is None:
        return f"<label>{escape(description)} <progress></progress> {count:,}</label>"
    left = f", about {seconds / count * (total - count):.0f} s left" if count else ""
    drawn = f'<progress value="{count}" max="{total}"></progress>'
    return f"<label>{escape(description)} {drawn} {count:,} of {total:,}{left}</label>"
