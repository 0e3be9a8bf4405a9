"""Refuse to test on training rows: a score on rows that a method was fitted on means little."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from assay.errors import InputError


def check_apart(first: Any, second: Any, names: tuple[str, str]) -> None:
    """Refuse two sets with the same rows."""
    if have_same_rows(first, second):
        raise InputError(
            f"expected {names[1]} with rows of its own, got those of {names[0]}; hold some rows out, since "
            "a score on fitted rows tells little about new ones"
        )


def have_same_rows(first: Any, second: Any) -> bool:
    """Whether two sets have the same rows, in any order, with or without labels.

    Costs nothing if the sets have different sizes. A DataLoader or Dataset is not read; two are the same only
    if they are one object.
    """
    return first is second or _same_rows(_inputs(first), _inputs(second))


def _inputs(data: Any) -> Any:
    """The inputs of (inputs, labels), or inputs alone."""
    return data[0] if isinstance(data, tuple) and len(data) == 2 else data


def _same_rows(first: Any, second: Any) -> bool:
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() == second.keys() and all(_same_rows(first[name], second[name]) for name in first)
    if not (_has_rows(first) and _has_rows(second)) or len(first) != len(second):
        return False
    return first is second or _row_hashes(first) == _row_hashes(second)


def _has_rows(inputs: Any) -> bool:
    return isinstance(inputs, Tensor | np.ndarray | list)


def _row_hashes(inputs: Any) -> Counter[int]:
    """How often each row occurs, by its hash."""
    if isinstance(inputs, list):
        return Counter(hash(repr(row)) for row in inputs)
    array = inputs.detach().cpu().numpy() if isinstance(inputs, Tensor) else inputs
    return Counter(hash(row.tobytes()) for row in array)
