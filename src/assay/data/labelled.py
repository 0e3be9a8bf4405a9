"""Labelled: what every reader returns, inputs and labels of the same rows."""

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from assay.errors import InputError
from assay.labels import IGNORED, class_numbers

T = TypeVar("T")

SHOWN = 10
"""Largest number of names in a note."""


class Labelled(tuple[T, Tensor]):
    """The pair (inputs, labels), with the names of the classes if the source has names.

    `classes[label]` is the name of a label; `classes` is None if the source only numbers its classes.
    `note` says which name got which number if no order was given, and is empty otherwise.

    >>> data = Labelled(torch.zeros(2, 1), torch.tensor([0, 1]), ("cat", "dog"))
    >>> inputs, labels = data
    >>> [data.classes[label] for label in labels]
    ['cat', 'dog']
    """

    classes: tuple[str, ...] | None
    note: str

    def __new__(
        cls, inputs: T, labels: Tensor, classes: Sequence[str] | None = None, *, in_sorted_order: bool = False
    ) -> "Labelled[T]":
        pair = super().__new__(cls, (inputs, labels))
        pair.classes = None if classes is None else tuple(classes)
        pair.note = _numbering(pair.classes) if in_sorted_order and pair.classes else ""
        return pair

    @property
    def inputs(self) -> T:
        return self[0]

    @property
    def labels(self) -> Tensor:
        return self[1]


def _numbering(classes: tuple[str, ...]) -> str:
    pairs = [f"{name} = {number}" for number, name in enumerate(classes)]
    shown = pairs if len(pairs) <= SHOWN else [*pairs[: SHOWN - 2], "...", pairs[-1]]
    return (
        f"class names were numbered in sorted order: {', '.join(shown)}; if the outputs of the network have "
        "another order, pass it as classes="
    )


def numbered(labels: Any, rows: int, source: object) -> Tensor:
    """Class numbers as int64, one for each of `rows` inputs; `IGNORED` where a row is to be left out."""
    try:
        numbers = class_numbers(labels)
    except InputError as error:
        raise InputError(f"{source}: {error}") from error
    if len(numbers) != rows:
        raise InputError(
            f"{source}: expected one label per input ({rows}), got {len(numbers)}; "
            "pass files that belong together"
        )
    if (wrong := (numbers < 0) & (numbers != IGNORED)).any():
        raise InputError(
            f"{source}: expected class numbers from 0, got {numbers[wrong][0]}; "
            f"number the classes from 0, and remove rows without a label, or label them {IGNORED}"
        )
    return numbers


def from_names(
    names: Sequence[str] | pd.Series, classes: Sequence[str] | None, source: object
) -> tuple[Tensor, tuple[str, ...]]:
    """Labels from class names: positions in `classes`, by default the names found, sorted."""
    column = pd.Series(names, dtype="str")
    class_names = tuple(sorted(column.unique()) if classes is None else classes)
    if len(set(class_names)) != len(class_names):
        raise InputError(f"expected classes without repetition, got {class_names}; name each class once")
    places = pd.Index(class_names, dtype="str").get_indexer(pd.Index(column))
    if (places < 0).any():
        raise InputError(
            f"{source}: expected the classes {list(class_names)}, got {column[int(np.argmin(places))]!r}; "
            "pass classes= with all classes, in the order of the network's outputs"
        )
    return torch.from_numpy(places.astype(np.int64)), class_names


def from_column(
    column: pd.Series, classes: Sequence[str] | None, source: object
) -> tuple[Tensor, tuple[str, ...] | None]:
    """Labels from a column of text: class numbers if every cell is one, class names otherwise."""
    if (empty := column.str.strip() == "").any():
        raise InputError(
            f"{source}: expected a label in every row, got none in row {int(np.argmax(empty)) + 1}; "
            "remove rows without a label"
        )
    numbers = pd.to_numeric(column, errors="coerce")
    if classes is not None or numbers.isna().any():
        return from_names(column, classes, source)
    try:
        return numbered(numbers.to_numpy(), len(column), source), None
    except InputError as error:
        raise InputError(f"{error}, or name the classes with classes=") from error
