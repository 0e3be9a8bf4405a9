"""Section: one part of the report, made from a result."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import pandas as pd

from assay.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@runtime_checkable
class Result(Protocol):
    """The interface of every result of assay: a title, a summary in words, a table and a figure.

    A result with several figures also has `figures() -> list[Figure]`, one made of other results
    `parts() -> list[Result]`.
    """

    title: str

    def summary(self) -> str: ...

    def to_frame(self) -> pd.DataFrame: ...

    def plot(self) -> "Figure": ...


@dataclass(frozen=True)
class Section:
    """A heading, the question it answers, words, advice, figures and a table."""

    title: str
    words: str = ""
    question: str = ""
    figures: Sequence["Figure"] = ()
    table: pd.DataFrame | None = None
    parts: Sequence["Section"] = field(default=())
    advice: str = ""

    @classmethod
    def of(cls, result: Any, title: str | None = None, question: str = "", advice: str = "") -> "Section":
        """The section of a result; a Section is returned unchanged."""
        if isinstance(result, Section):
            return result
        if not isinstance(result, Result):
            raise InputError(
                f"expected a result with title, summary, to_frame and plot, got {type(result).__name__}; "
                "pass what assay's functions return, or a Section"
            )
        figures = result.figures() if hasattr(result, "figures") else [result.plot()]
        table = result.to_frame()
        return cls(title or result.title, result.summary(), question, figures, table, advice=advice)
