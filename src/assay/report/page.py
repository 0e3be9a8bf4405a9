"""The page: everything embedded, nothing downloaded, readable on a phone and on paper."""

import base64
import datetime
import io
import os
from collections.abc import Iterable
from importlib.resources import files
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import jinja2
import numpy as np
import pandas as pd

import assay
from assay.errors import InputError
from assay.report.columns import meanings
from assay.report.section import Section
from assay.storage import write_text_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LONGEST_TABLE = 200
"""Rows shown; `to_frame` returns the whole table."""


def write_report(
    results: Iterable[Any],
    path: str | os.PathLike[str],
    *,
    title: str = "How far can this network be trusted?",
    introduction: str = "",
) -> None:
    """Write results (or Sections) to one HTML file at `path`, whole or not at all.

    A result made of others (`parts()`) is followed by them.
    """
    sections = [Section.of(part) for result in results for part in _with_parts(result)]
    if not sections:
        raise InputError("expected at least one result to report, got none; run something first")
    page = _template().render(
        title=title,
        introduction=introduction,
        sections=sections,
        version=assay.__version__,
        date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )
    write_text_whole(path, page)


def _with_parts(result: Any) -> list[Any]:
    return [result] if isinstance(result, Section) else [result, *getattr(result, "parts", list)()]


def _template() -> jinja2.Template:
    folder = files("assay.report")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: (folder / name).read_text(encoding="utf-8")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "figure_address": _figure_address,
        "caption": _caption,
        "cell": _cell,
        "rows": _rows,
        "number": _number,
        "numeric": _numeric,
        "heading": _heading,
        "meanings": meanings,
    }
    environment.globals |= {"longest_table": LONGEST_TABLE}
    return environment.get_template("page.html")


def _figure_address(figure: "Figure") -> str:
    """The figure as an SVG data address; as a separate image, its ids cannot clash with another's."""
    import matplotlib

    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "assay", "svg.fonttype": "path"}):
        figure.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode()


def _caption(figure: "Figure") -> str:
    """The titles in the figure, for people who cannot see it."""
    titles = [figure.get_suptitle(), *(axes.get_title() for axes in figure.axes)]
    return "; ".join(text for text in titles if text) or "figure"


def _rows(table: pd.DataFrame) -> list[tuple[Any, ...]]:
    return list(table.head(LONGEST_TABLE).itertuples(index=False, name=None))


def _cell(value: Any) -> str:
    """Numbers to four significant digits, whole numbers in full, missing values as a dash."""
    if value is None or value != value:
        return "–"
    if isinstance(value, bool | np.bool):
        return "yes" if value else "no"
    if isinstance(value, Integral):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, Real) else str(value)


def _number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _numeric(column: "pd.Series[Any]") -> bool:
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def _heading(name: Any) -> str:
    return str(name).replace("_", " ")
