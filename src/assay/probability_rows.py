"""Rows of class probabilities from any table of numbers, and what is wrong with a row that is none."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from torch import Tensor

from assay.errors import InputError

Array: TypeAlias = npt.NDArray[np.floating[Any]]
Mask: TypeAlias = npt.NDArray[np.bool_]

SUM_TOLERANCE = 1e-3
"""How far a sum may be from one: probabilities written with three or four decimals pass, logits do not."""
HALF_TOLERANCE = 1e-2
"""The same for 16-bit floats, whose softmax sums to one less exactly."""

_ROWS_PER_BLOCK = 8_192


def numbers(probabilities: Any) -> Array:
    """The numbers of an array, a tensor, a data frame or a list, in whatever shape they have."""
    if isinstance(probabilities, Tensor):
        probabilities = probabilities.detach().cpu()
        # NumPy has no bfloat16; 16 bits stay 16 bits, since they are judged more leniently.
        probabilities = (probabilities.half() if probabilities.itemsize == 2 else probabilities).numpy()
    try:
        values = np.asarray(probabilities)
        return values if values.dtype.kind == "f" else values.astype(float)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"expected rows of class probabilities, got {type(probabilities).__name__} that is not a table "
            f"of numbers ({error}); pass one row of probabilities per prediction"
        ) from error


def class_rows(values: Array) -> Array:
    """(N, classes), unchecked but for its shape."""
    if values.ndim != 2:
        raise InputError(
            f"expected probabilities of shape (N, classes), got {values.shape}; pass one row per prediction"
        )
    if values.shape[1] < 2:
        raise InputError(
            "expected probabilities of at least two classes, got one; for a binary network that gives a "
            "single probability p pass the two columns 1 - p and p"
        )
    return values


def both_classes(values: Array) -> Array:
    """A column p of probabilities, (N,) or (N, 1), as the two classes 1 - p and p; anything else as it is."""
    column = values[:, None] if values.ndim == 1 else values
    return np.hstack([1 - column, column]) if column.ndim == 2 and column.shape[1] == 1 else column


def expect_probabilities(rows: Array) -> Array:
    """The rows; the first one that is not a probability distribution is an error."""
    bad = bad_rows(rows)
    if bad.any():
        raise InputError(complaint(rows, bad))
    return rows


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
