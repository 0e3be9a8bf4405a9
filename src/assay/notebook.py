"""How results show themselves in a notebook: words, a figure, and the first rows of the table."""

import html
from typing import TYPE_CHECKING, Any

import pandas as pd

from assay.errors import AssayError
from assay.figure_image import caption, figure_address
from assay.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_ROWS = 10


class Shown:
    """Shows itself in notebooks, by what it has of `title`, `summary()`, `plot()` and `to_frame()`."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        title = getattr(self, "title", type(self).__name__)
        words, figure, table = (_found(self, name) for name in ("summary", "plot", "to_frame"))
        return page_of(title, words, figure, table)


def page_of(title: str, words: str | None, figure: "Figure | None", table: pd.DataFrame | None) -> str:
    """All of it as HTML, with everything escaped."""
    return "".join([f"<h4>{html.escape(title)}</h4>", _paragraphs(words), _image(figure), _rows(table)])


def _found(thing: object, name: str) -> Any:
    """What the method returns; None if there is none, or if it cannot say anything yet."""
    method = getattr(thing, name, None)
    try:
        return None if method is None else method()
    except AssayError:
        return None


def _paragraphs(words: str | None) -> str:
    return "".join(f"<p>{html.escape(part)}</p>" for part in (words or "").split("\n\n") if part)


def _image(figure: "Figure | None") -> str:
    if figure is None:
        return ""
    address, words = figure_address(figure), html.escape(caption(figure))
    return f'<p><img src="{address}" alt="{words}" style="max-width: 100%"></p>'


def _rows(table: pd.DataFrame | None) -> str:
    if table is None:
        return ""
    shown = Table(table.head(MOST_ROWS))._repr_html_()
    rest = f", the first {MOST_ROWS} shown" if len(table) > MOST_ROWS else ""
    return f"<details><summary>{len(table):,} rows{rest}</summary>{shown}</details>"
