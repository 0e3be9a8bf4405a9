"""Section: one part of the report, made from a result."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import pandas as pd

from assay.errors import InputError
from assay.report.gate_card import GateCard

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@runtime_checkable
class Result(Protocol):
    """The interface of every result of assay: a title, a summary in words, a table and a figure.

    A result with several figures also has `figures() -> list[Figure]`, one made of other results
    `parts() -> list[Result]`, one that says what to do `advice() -> str`, one that is a verdict
    `banner() -> (True, False or None, one sentence)`, and one that has conditions `gates`.
    """

    title: str

    def summary(self) -> str: ...

    def to_frame(self) -> pd.DataFrame: ...

    def plot(self) -> "Figure": ...


@dataclass(frozen=True)
class Banner:
    """A verdict that is seen at once: `state` is "good", "bad" or "open"."""

    state: str
    sentence: str

    @classmethod
    def of(cls, passed: bool | None, sentence: str) -> "Banner":
        return cls({True: "good", False: "bad", None: "open"}[passed], sentence)

    @property
    def icon(self) -> str:
        return {"good": "✓", "bad": "✗", "open": "?"}[self.state]


@dataclass(frozen=True)
class Section:
    """A heading, the question it answers, words, advice, figures and a table; for a verdict its banner, and
    its gates as cards."""

    title: str
    words: str = ""
    question: str = ""
    figures: Sequence["Figure"] = ()
    table: pd.DataFrame | None = None
    parts: Sequence["Section"] = field(default=())
    advice: str = ""
    banner: Banner | None = None
    gates: Sequence[GateCard] = ()

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
        gates = tuple(GateCard(gate) for gate in getattr(result, "gates", ()))
        said = advice or (result.advice() if hasattr(result, "advice") else "")
        banner = Banner.of(*result.banner()) if hasattr(result, "banner") else None
        figures: list[Figure] = []
        if gates:  # the banner and the cards have its words and its figure
            words = getattr(result, "missing", "")
        else:
            words = result.summary()
            figures = result.figures() if hasattr(result, "figures") else [result.plot()]
        table = result.to_frame()
        return cls(title or result.title, words, question, figures, table, (), said, banner, gates)
