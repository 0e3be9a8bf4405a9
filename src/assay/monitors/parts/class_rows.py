"""The class a row is fitted under, the rows that are learned from, and the score of a class without rows."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from assay.errors import InputError
from assay.monitors.parts.gathered import Gathered
from assay.monitors.parts.reservoir import Reservoir
from assay.monitors.parts.row_keys import RowKeys
from assay.trace import Trace

UNSEEN = float(torch.finfo(torch.float32).max)
"""The score of a prediction whose class never occurred in fit: the largest there is, and finite."""


_SHOWN = 5
"""Classes that a sentence names."""


def fitting_classes(trace: Trace) -> Tensor:
    """The class each row is fitted under: its label where the Trace has labels, else its prediction."""
    return trace.predictions if trace.labels is None else trace.labels


def places_in_class(classes: Tensor) -> Tensor:
    """The place of each row among those of its class, from 0.

    >>> places_in_class(torch.tensor([1, 0, 1, 1, 0])).tolist()
    [0, 0, 1, 2, 1]
    """
    order = classes.argsort(stable=True)
    starts = torch.bincount(classes).cumsum(0) - torch.bincount(classes)
    places = torch.empty_like(order)
    places[order] = torch.arange(len(order)) - starts[classes[order]]
    return places


def teaching(trace: Trace) -> Tensor:
    """Mask of the rows to learn from: the correctly classified ones where labels are known, else all."""
    return torch.ones(len(trace), dtype=torch.bool) if trace.labels is None else trace.correct


class ClassSample(Gathered):
    """Features of the rows to learn from, per predicted class, at most `limit` each, sampled uniformly."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._classes: dict[int, Reservoir] = {}

    @classmethod
    def of(cls, traces: Iterable[Trace], layer: str | None, limit: int | None, seed: int) -> "ClassSample":
        """Of one layer, or of the logits where this is None."""
        sample, keys = cls(limit), RowKeys(seed)
        for trace in traces:
            # Rows that do not teach belong to no class.
            classes = torch.where(teaching(trace), trace.predictions, -1)
            sample.add(trace.layer(layer) if layer else trace.logits, classes, keys.next(trace.logits))
        return sample

    def add(self, rows: Tensor, classes: Tensor, keys: Tensor) -> None:
        for label in torch.unique(classes[classes >= 0]).tolist():
            here = classes == label
            self._classes.setdefault(label, Reservoir(self._limit)).add(keys[here], rows[here])

    def merge(self, other: "ClassSample") -> None:
        for label, rows in other._classes.items():
            self._classes.setdefault(label, Reservoir(self._limit)).merge(rows)

    def rows(self) -> dict[int, Tensor]:
        """By class, in order; an error where there is none."""
        some_class(self._classes)
        return {label: self._classes[label].rows() for label in sorted(self._classes)}


def unseen_remedy(seen: Iterable[int], count: int) -> str:
    """For `remedy_`: the classes without rows; empty where there are none."""
    missing = sorted(set(range(count)) - set(seen))
    if not missing:
        return ""
    return (
        f"no rows of {named(missing)}, so that predictions of these get the largest score; "
        "fit on rows of every class"
    )


def named(classes: Sequence[Any]) -> str:
    """Classes for a sentence: the first few, and how many more there are.

    >>> named([3]), named(range(10, 20))
    ('class 3', 'classes 10, 11, 12, 13, 14 and 5 more')
    """
    shown = ", ".join(map(str, classes[:_SHOWN]))
    more = f" and {len(classes) - _SHOWN} more" if len(classes) > _SHOWN else ""
    return f"{'class' if len(classes) == 1 else 'classes'} {shown}{more}"


def some_class(classes: object) -> None:
    """Raise an error if no class has rows."""
    if not classes:
        raise no_class()


def no_class() -> InputError:
    return InputError(
        "expected correctly classified rows to learn from, got none; pass labels of the network's own "
        "classes, or a Trace without labels to use its predictions"
    )
