"""Two sets of data that must not be one: a score on the rows that were learned from says nothing."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from assay.errors import InputError


def check_apart(first: Any, second: Any, names: tuple[str, str]) -> None:
    """Refuse the same rows twice, in whatever order, with or without labels.

    Costs nothing where the sets are of different size. A DataLoader or Dataset is not read for this; only
    the very same one is refused.
    """
    if first is second or _same(_inputs(first), _inputs(second)):
        raise InputError(
            f"expected {names[1]} with rows of its own, got those of {names[0]}; keep some rows apart: what "
            "was fitted to a row says little about others"
        )


def _inputs(data: Any) -> Any:
    """Of (inputs, labels), or of inputs alone."""
    return data[0] if isinstance(data, tuple) and len(data) == 2 else data


def _same(first: Any, second: Any) -> bool:
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() == second.keys() and all(_same(first[name], second[name]) for name in first)
    if not (_readable(first) and _readable(second)) or len(first) != len(second):
        return False
    return first is second or _marks(first) == _marks(second)


def _readable(inputs: Any) -> bool:
    return isinstance(inputs, Tensor | np.ndarray | list)


def _marks(inputs: Any) -> Counter[int]:
    """How often each row occurs, by a hash of it."""
    if isinstance(inputs, list):
        return Counter(hash(repr(row)) for row in inputs)
    array = inputs.detach().cpu().numpy() if isinstance(inputs, Tensor) else inputs
    return Counter(hash(row.tobytes()) for row in array)
