"""Section: one answer in the report, made from what every result owes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import pandas as pd

from assay.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@runtime_checkable
class Result(Protocol):
    """What every result of assay owes: a title, plain words, a table and a picture.

    A result with more than one picture also has `figures() -> list[Figure]`, one that stands on other results
    `parts() -> list[Result]`.
    """

    title: str

    def summary(self) -> str: ...

    def to_frame(self) -> pd.DataFrame: ...

    def plot(self) -> "Figure": ...


@dataclass(frozen=True)
class Section:
    """A heading, the question it answers, words, what to do about it, pictures and a table."""

    title: str
    words: str = ""
    question: str = ""
    figures: Sequence["Figure"] = ()
    table: pd.DataFrame | None = None
    parts: Sequence["Section"] = field(default=())
    advice: str = ""

    @classmethod
    def of(cls, result: Any, title: str | None = None, question: str = "", advice: str = "") -> "Section":
        """The section of a result; a Section stays as it is."""
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
