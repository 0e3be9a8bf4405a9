"""Rows of class probabilities: read from any form, and checked before anything is computed from them."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from torch import Tensor

from assay.errors import InputError
from assay.trace import Trace

Array: TypeAlias = npt.NDArray[np.floating[Any]]
Mask: TypeAlias = npt.NDArray[np.bool_]

SUM_TOLERANCE = 1e-3
"""How far a sum may be from one: probabilities written with three or four decimals pass, logits do not."""
HALF_TOLERANCE = 1e-2
"""The same for 16-bit floats, whose softmax sums to one less exactly."""

_ROWS_PER_BLOCK = 8_192


def as_rows(probabilities: Any) -> Array:
    """(N, classes) floats from an array, tensor, list or Trace, unchecked; a single row may be flat."""
    if isinstance(probabilities, Trace):
        probabilities = probabilities.probabilities
    if isinstance(probabilities, Tensor):
        probabilities = probabilities.detach().cpu()
        probabilities = (probabilities.float() if probabilities.itemsize < 4 else probabilities).numpy()
    try:
        rows = np.asarray(probabilities)
        rows = rows if rows.dtype.kind == "f" else rows.astype(float)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"expected rows of class probabilities, got {type(probabilities).__name__} that is not a table "
            f"of numbers ({error}); pass one row of probabilities per prediction"
        ) from error
    rows = rows[None] if rows.ndim == 1 else rows
    if rows.ndim != 2:
        raise InputError(
            f"expected probabilities of shape (N, classes), got {rows.shape}; pass one row per prediction"
        )
    if rows.shape[1] < 2:
        raise InputError(
            "expected probabilities of at least two classes, got one; for a binary network that gives a "
            "single probability p pass the two columns 1 - p and p"
        )
    return rows


def checked_rows(probabilities: Any) -> Array:
    """As `as_rows`; the first row that is not a probability distribution is an error."""
    rows = as_rows(probabilities)
    bad = bad_rows(rows)
    if bad.any():
        raise InputError(complaint(rows, bad))
    return rows


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


def bad_rows(rows: Array) -> Mask:
    """Which rows are not finite, contain a negative value, or do not sum to one. One pass over the rows."""
    tolerance = HALF_TOLERANCE if rows.itemsize < 4 else SUM_TOLERANCE
    bad = np.empty(len(rows), bool)
    ones = np.ones(rows.shape[1], rows.dtype if rows.itemsize >= 4 else np.float32)
    for start in range(0, len(rows), _ROWS_PER_BLOCK):
        part = rows[start : start + _ROWS_PER_BLOCK]
        # A row with NaN or infinity has a sum that fails the comparison, so no test of its own is needed.
        with np.errstate(invalid="ignore"):
            fits = np.abs(part @ ones - 1) <= tolerance
            if not part.min() >= 0:
                fits &= part.min(axis=1) >= 0
        bad[start : start + _ROWS_PER_BLOCK] = ~fits
    return bad


def complaint(rows: Array, bad: Mask) -> str:
    """One sentence about the first bad row."""
    place = int(np.argmax(bad))
    row = rows[place]
    if not np.isfinite(row).all():
        found, advice = "contains NaN or infinity", "look for a failing network or a broken file"
    elif row.min() < 0:
        found, advice = f"contains {row.min():.4g}", "if these are logits, pass their softmax"
    else:
        found, advice = f"sums to {row.sum():.4g}", "if these are logits or scores, pass their softmax"
    others = f" ({int(bad.sum())} such rows)" if bad.sum() > 1 else ""
    return (
        f"expected rows of probabilities, none negative, that sum to one, but row {place} {found}{others}; "
        f"{advice}"
    )
