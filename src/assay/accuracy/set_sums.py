"""Set sums: all that the answer needs of a set of predictions, in numbers that add up over devices."""

from dataclasses import dataclass, fields
from functools import cached_property
from typing import ClassVar

import numpy as np

from assay.errors import InputError
from assay.storage import storable
from assay.volatility.certainty import Doubles


@storable("accuracy.SetSums")
@dataclass(frozen=True, eq=False)
class SetSums:
    """Sums over disjoint sets of rows are merged with `+`; no row can be told from them."""

    rows: int
    scores: Doubles
    """Sum of every row signal."""
    gram: Doubles
    """(classes, classes): probabilities' times probabilities."""
    predicted: Doubles
    """Rows per predicted class."""
    above: float
    """Rows whose confidence is above the cut that splits off as many reference rows as are wrong."""
    expected: float
    """Sum of the confidences, calibrated on the reference."""
    doubts: Doubles
    """Rows per cell of doubt: bins of a few signals, whatever the class."""
    cells: Doubles
    """Rows per predicted class, bin of confidence and bin of distance."""
    repeats: int
    """Rows that equal the row before, to the last bit of their logits."""
    values: int
    """Input values that were looked at, zero where inputs are not known."""
    extremes: int
    """Input values at the smallest or largest value of the reference, or beyond."""
    lowest: Doubles
    """Smallest value at each of up to 256 positions of the inputs; empty where inputs are not known."""
    highest: Doubles

    @cached_property
    def signals(self) -> Doubles:
        """`set_signals` of this set."""
        return set_signals(self)

    BOUNDS: ClassVar[tuple[str, ...]] = ("lowest", "highest")

    def __add__(self, other: "SetSums") -> "SetSums":
        if self.lowest.shape != other.lowest.shape:
            raise InputError(
                f"expected sets with inputs of one shape, got {self.lowest.shape} and {other.lowest.shape}; "
                "count inputs on every device or on none"
            )
        added = {
            field.name: getattr(self, field.name) + getattr(other, field.name)
            for field in fields(self)
            if field.name not in self.BOUNDS
        }
        return SetSums(
            **added,
            lowest=np.minimum(self.lowest, other.lowest),
            highest=np.maximum(self.highest, other.highest),
        )


SIGNALS = ("nuclear norm", "evenness", "entropy of classes", "largest class", "above the cut", "expected")
"""What `set_signals` adds to the means of the row signals, in order."""

NUCLEAR_NORM = -len(SIGNALS)


def set_signals(sums: SetSums) -> Doubles:
    """Numbers that describe the set: the means of all row signals, then those of SIGNALS.

    The nuclear norm of the probabilities is divided by its largest value (Deng et al. 2023). Evenness is the
    nuclear norm that sure predictions of the same classes would have.
    """
    rows, classes = sums.rows, len(sums.predicted)
    singular = np.sqrt(np.clip(np.linalg.eigvalsh(sums.gram), 0, None))
    shares = sums.predicted / rows
    entropy = -(shares * np.log(np.where(shares > 0, shares, 1.0))).sum() / np.log(classes)
    largest_norm = np.sqrt(rows * min(rows, classes))
    return np.array(
        [
            *(sums.scores / rows),
            singular.sum() / largest_norm,
            np.sqrt(sums.predicted).sum() / largest_norm,
            entropy,
            shares.max(),
            sums.above / rows,
            sums.expected / rows,
        ]
    )
