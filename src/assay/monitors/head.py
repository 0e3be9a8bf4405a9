"""The last linear layer, recovered from what it did."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.errors import InputError
from assay.monitors.blocks import in_blocks
from assay.monitors.moments import ClassMoments
from assay.trace import Trace

_RANK = 1e-12
"""Share of the largest variance below which a direction of the features counts as constant."""

_UNEXPLAINED = 1e-6
"""Share of the logits' variance that rounding may leave unexplained; a layer that is not the head's input
leaves percents."""


@dataclass(frozen=True)
class Head:
    """logits = features weight' + bias, with the mean and scatter of the features that showed it."""

    weight: Tensor
    bias: Tensor
    mean: Tensor
    scatter: Tensor
    rows: int
    rank: int


def recovered_head(traces: Iterator[Trace], layer: str, beside: Callable[[Trace], None]) -> Head:
    """Least squares of the logits on the features, from sums; `beside` sees every Trace as it goes by.

    Exact where the layer feeds the last Linear. Features that are constant or dependent leave the weights
    undetermined in some directions; those are set to zero (the smallest solution), which changes no logit
    of the fitted rows. One product of N x (d + C) x (d + C).
    """

    def parts() -> Iterator[tuple[Tensor, ...]]:
        for trace in traces:
            beside(trace)
            yield trace.layer(layer), trace.logits

    moments: ClassMoments | None = None
    size = 0
    for features, logits in in_blocks(parts()):
        both = torch.cat([features, logits], dim=1)
        if moments is None:
            size = features.shape[1]
            moments = ClassMoments(classes=1, dimensions=both.shape[1])
        moments.add(both, torch.zeros(len(both), dtype=torch.long))
    assert moments is not None  # a stream without rows is refused by Monitor.fit
    return _solved(moments, size, layer)


def _solved(moments: ClassMoments, size: int, layer: str) -> Head:
    if moments.rows <= size + 1:
        raise InputError(
            f"expected more rows than the {size} features of layer {layer!r} plus one, to recover the last "
            f"linear layer from them, got {moments.rows}; fit on more rows"
        )
    scatter, mean = moments.scatter, moments.mean
    inner, cross, outer = scatter[:size, :size], scatter[:size, size:], scatter[size:, size:]
    variances, directions = torch.linalg.eigh(inner)
    known = variances > _RANK * variances[-1]
    directions = directions[:, known]
    weight = (directions @ ((directions.T @ cross) / variances[known, None])).T
    left = outer.diagonal().sum() - 2 * (weight * cross.T).sum() + ((weight @ inner) * weight).sum()
    if left > _UNEXPLAINED * outer.diagonal().sum():
        raise InputError(
            f"expected layer {layer!r} to determine the logits linearly, as the input of the last Linear "
            f"does, got a share of {float(left / outer.diagonal().sum()):.2g} of their variance unexplained; "
            "use layer='penultimate' of a network that ends in a Linear"
        )
    return Head(
        weight, mean[size:] - weight @ mean[:size], mean[:size], inner, moments.rows, int(known.sum())
    )
