"""The class a row is fitted under, the rows that are learned from, and the score of a class without rows."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from assay.errors import InputError
from assay.monitors.parts.reservoir import Reservoir
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


def features_by_class(traces: Iterator[Trace], layer: str, limit: int | None, seed: int) -> dict[int, Tensor]:
    """Features of the rows to learn from, per predicted class, at most `limit` each, sampled uniformly."""
    reservoirs: dict[int, Reservoir] = {}
    for trace in traces:
        rows = teaching(trace)
        features, classes = trace.layer(layer)[rows], trace.predictions[rows]
        for label in torch.unique(classes).tolist():
            reservoirs.setdefault(label, Reservoir(limit, seed)).add(features[classes == label])
    some_class(reservoirs)
    return {label: reservoirs[label].rows() for label in sorted(reservoirs)}


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
