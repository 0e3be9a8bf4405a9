"""The class a row is fitted under, the rows that are learned from, and the score of a class without rows."""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from assay.errors import InputError
from assay.monitors.parts.reservoir import Reservoir
from assay.trace import Trace

UNSEEN = float(torch.finfo(torch.float32).max)
"""The score of a prediction whose class never occurred in fit: the largest there is, and finite."""


def fitting_classes(trace: Trace) -> Tensor:
    """The class each row is fitted under: its label where the Trace has labels, else its prediction."""
    return trace.predictions if trace.labels is None else trace.labels


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
        f"no rows of classes {missing}, so that predictions of them get the largest score; "
        "fit on rows of every class"
    )


def some_class(classes: object) -> None:
    """Raise an error if no class has rows."""
    if not classes:
        raise no_class()


def no_class() -> InputError:
    return InputError(
        "expected correctly classified rows to learn from, got none; pass labels of the network's own "
        "classes, or a Trace without labels to use its predictions"
    )
