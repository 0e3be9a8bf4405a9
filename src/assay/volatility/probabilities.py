"""Rows of class probabilities: read from any form, and checked before anything is computed from them."""

from typing import Any

import numpy as np
from torch import Tensor

from assay.probability_rows import (
    SUM_TOLERANCE,
    Array,
    bad_rows,
    class_rows,
    expect_probabilities,
    numbers,
)
from assay.trace import Trace

__all__ = ["Array", "as_rows", "bad_rows", "checked_rows", "sure_row"]


def as_rows(probabilities: Any) -> Array:
    """(N, classes) floats from an array, tensor, list or Trace, unchecked; a single row may be flat."""
    if isinstance(probabilities, Trace):
        probabilities = probabilities.probabilities
    rows = numbers(probabilities)
    return class_rows(rows[None] if rows.ndim == 1 else rows)


def checked_rows(probabilities: Any) -> Array:
    """As `as_rows`; the first row that is not a probability distribution is an error."""
    return expect_probabilities(as_rows(probabilities))


def sure_row(probabilities: Any, classes: int) -> list[float] | None:
    """The values of a single row if they are clearly a distribution over `classes`; otherwise None.

    Within half the tolerance: anything closer to the limit is left to `bad_rows` and its rounding.
    """
    kind = type(probabilities)
    if kind is np.ndarray or kind is Tensor:
        if probabilities.ndim == 2 and len(probabilities) == 1:
            probabilities = probabilities[0]
        row = probabilities.tolist() if probabilities.ndim == 1 else []
        floats = bool(row) and type(row[0]) is float
    else:
        row = probabilities
        floats = kind is list and set(map(type, row)) == {float}
    if not floats or len(row) != classes:
        return None
    return row if min(row) >= 0 and abs(sum(row) - 1) <= SUM_TOLERANCE / 2 else None
