"""Refuse to test on training rows: a score on rows that a method was fitted on means little."""

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
from torch import Tensor

from assay.errors import InputError

MOST_SHARED = 0.5
"""The largest share of rows that two sets may have in common: a few rows occur twice in many data."""


def check_apart(first: Any, second: Any, names: tuple[str, str]) -> None:
    """Refuse a second set most of whose rows are in the first."""
    if shared := shared_rows(first, second):
        raise InputError(
            f"expected {names[1]} with rows of its own, got those of {names[0]} ({shared:,} of its rows); "
            "hold some rows out, since a score on fitted rows tells little about new ones"
        )


def shared_rows(first: Any, second: Any) -> int:
    """How many rows of the second set are in the first, if most of them are; 0 otherwise.

    Labels and the order of rows do not matter. Where rows repeat within the second set, as in tables of a few
    values, they may repeat in the first as well, and only equal sets count. A DataLoader or Dataset is not
    read; two share rows only if they are one object.
    """
    known, mine = _row_hashes(_inputs(first)), _row_hashes(_inputs(second))
    if not mine:
        return _length(second) if first is second else 0
    if len(set(mine)) < MOST_SHARED * len(mine):
        return len(mine) if Counter(mine) == Counter(known) else 0
    among = set(known)
    shared = sum(row in among for row in mine)
    return shared if shared > MOST_SHARED * len(mine) else 0


def _inputs(data: Any) -> Any:
    """The inputs of (inputs, labels), or inputs alone."""
    return data[0] if isinstance(data, tuple) and len(data) == 2 else data


def _length(data: Any) -> int:
    return len(data) if hasattr(data, "__len__") else 1


def _row_hashes(inputs: Any) -> list[Hashable]:
    """A hash of each row; none if the rows cannot be read without side effects."""
    if isinstance(inputs, Mapping):
        columns = [_row_hashes(inputs[name]) for name in sorted(inputs)]
        return list(zip(*columns, strict=False))
    if isinstance(inputs, list):
        return [hash(repr(row)) for row in inputs]
    if isinstance(inputs, Tensor):
        inputs = inputs.detach().cpu().numpy()
    return [hash(row.tobytes()) for row in inputs] if isinstance(inputs, np.ndarray) else []
