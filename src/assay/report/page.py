"""The page: everything embedded, nothing downloaded, readable on a phone and on paper."""

import datetime
import os
import platform
from collections.abc import Iterable, Mapping
from importlib import metadata
from importlib.resources import files
from numbers import Real
from typing import Any

import jinja2
import pandas as pd

import assay
from assay.errors import InputError
from assay.figure_image import caption, figure_address
from assay.report.cells import cell_text, share_columns, shares_in_words
from assay.report.columns import meanings
from assay.report.section import Section
from assay.storage import write_text_whole

LONGEST_TABLE = 200
"""Rows shown; `to_frame` returns the whole table."""


def write_report(
    results: Iterable[Any],
    path: str | os.PathLike[str],
    *,
    title: str = "How far can this network be trusted?",
    introduction: str = "",
    origin: Mapping[str, object] | None = None,
) -> None:
    """Write results (or Sections) to one HTML file at `path`, whole or not at all.

    A result made of others (`parts()`) is followed by them. Verdicts among them stand on top, before
    anything else. `origin` says where it all came from (command, data, seed): it is folded at the top, with
    the versions.
    """
    sections = [Section.of(part) for result in results for part in _with_parts(result)]
    if not sections:
        raise InputError("expected at least one result to report, got none; run something first")
    page = _template().render(
        title=title,
        introduction=introduction,
        sections=sections,
        banners=[section.banner for section in sections if section.banner],
        origin={**(origin or {}), **versions()},
        version=assay.__version__,
        date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )
    write_text_whole(path, page)


def versions() -> dict[str, str]:
    """Of assay, and of what computes for it."""
    names = ("assay", "torch", "numpy", "scipy", "scikit-learn")
    found = [f"{name} {metadata.version(name)}" for name in names if _is_installed(name)]
    return {"versions": ", ".join([*found, f"Python {platform.python_version()}"])}


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


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
        "figure_address": figure_address,
        "caption": caption,
        "cell": cell_text,
        "words": shares_in_words,
        "shares": share_columns,
        "rows": _rows,
        "number": _number,
        "numeric": _numeric,
        "heading": _heading,
        "meanings": meanings,
    }
    environment.globals |= {"longest_table": LONGEST_TABLE}
    return environment.get_template("page.html")


def _rows(table: pd.DataFrame) -> list[tuple[Any, ...]]:
    return list(table.head(LONGEST_TABLE).itertuples(index=False, name=None))


def _number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _numeric(column: "pd.Series[Any]") -> bool:
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def _heading(name: Any) -> str:
    return str(name).replace("_", " ")
