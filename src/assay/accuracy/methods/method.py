"""The contract of a method that estimates accuracy without labels.

A method is fitted on labelled reference data. In operation it needs only sums over rows, which may be taken
on many machines and added; each method decides what it sums.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from assay.accuracy.predictions import AccuracyReference, Predictions
from assay.volatility.certainty import Doubles


class Method(ABC):
    """One way to estimate accuracy, with the assumption under which it is right.

    Everything that `fit` learns is an attribute whose name ends in an underscore; a file contains these.
    """

    name: ClassVar[str]
    assumption: ClassVar[str]
    counted: ClassVar[str]
    """The sums it takes over operational rows, in words."""
    additive: ClassVar[bool] = True
    """Whether sums of disjoint rows may be added; if not, the method needs all rows at once."""

    note_: str = ""
    """Why it does not work with this reference, in a few words; empty where it does."""

    @classmethod
    def applies(cls, reference: AccuracyReference) -> bool:
        """Whether this reference contains what the method needs."""
        return True

    @property
    def usable_(self) -> bool:
        """Whether what it learned is worth using; the note says why not."""
        return not self.note_

    @property
    def sums_name(self) -> str:
        """What its sums go by: methods that need the same sums share a name, and they are taken once."""
        return self.name

    def obstacle(self, predictions: Predictions) -> str:
        """Why the method has nothing to say about these rows, in a few words; empty where it has."""
        return ""

    @abstractmethod
    def fit(self, reference: AccuracyReference) -> Self:
        """Learn from predictions whose labels are known."""

    @abstractmethod
    def sums(self, predictions: Predictions) -> Doubles:
        """Sums over these rows; those of disjoint rows may be added."""

    @abstractmethod
    def interval(self, sums: Doubles, rows: int, level: float) -> tuple[float, float, float]:
        """(value, lower, upper) of the accuracy on `rows` rows; NaN where the rows are too few."""

    def doubt(self, sums: Doubles, rows: int) -> str:
        """Why the estimate from these sums is not to be used, in a few words; empty where it is."""
        return self.note_

    def state(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        method = cls()
        vars(method).update(state)
        return method
