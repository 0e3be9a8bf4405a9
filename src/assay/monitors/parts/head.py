"""The last linear layer, recovered from what it did."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay.errors import InputError
from assay.monitors.parts.gathered import Gathered
from assay.monitors.parts.moments import ClassMoments, amplification

_RANK = 1e-12
"""Share of the largest variance below which a direction of the features counts as constant."""

_ROUND = 100.0
"""Amplification (see `moments.amplification`) up to which every direction is known to ten digits or more."""

_UNEXPLAINED = 1e-6
"""Share of the logits' variance that rounding may leave unexplained; a layer that is not the head's input
leaves percents."""

_PRECISIONS = ((torch.bfloat16, 2.0**-8), (torch.float16, 2.0**-11), (torch.float32, 0.0))
"""Types that logits may have been rounded to, and the largest relative error of that. Errors of one rounding
add up to 0.18 of its square times the sum of squares; all of it is allowed, for kernels that round several
times. Of single precision, `_UNEXPLAINED` is far above what it leaves."""

_FIRST_LOOK = 1024
"""Rows (or two per feature, if that is more) after which the layer may be known."""


@dataclass(frozen=True)
class Head:
    """logits = features weight' + bias, in the `rank` directions in which features of `rows` rows vary."""

    weight: Tensor
    bias: Tensor
    rank: int
    rows: int
    rounding: float
    """Largest difference between a logit and what the features say of it that counts as rounding."""

    def explains(self, features: Tensor, logits: Tensor) -> bool:
        """Whether every one of these logits is what the layer makes of the features."""
        # The transposed product is the faster way round where classes are few.
        made = torch.addmm(self.bias[:, None].to(features.dtype), self.weight.to(features.dtype), features.T)
        return bool((made - logits.T).abs().max() <= self.rounding)


class HeadFit(Gathered):
    """Least squares of the logits on the features, from sums over the rows that add information.

    Exact where the layer feeds the last Linear. Rows that the layer as known so far explains to rounding are
    passed over: for most it is known after the first thousands, and the rest cost N x d x C instead of
    N x (d + C) x (d + C). Features that are constant or dependent leave the weights undetermined in some
    directions; those are set to zero (the smallest solution), which changes no logit of the fitted rows.
    """

    unsaved: ClassVar = {"_solution": None}

    def __init__(self, layer: str, size: int, classes: int) -> None:
        self._layer = layer
        self._size = size
        self._moments = ClassMoments(1, size + classes)
        self._solution: Head | None = None
        self._next_look = max(_FIRST_LOOK, 2 * size)
        self._precision = 0  # among _PRECISIONS, the coarsest that can write all logits

    def add(self, features: Tensor, logits: Tensor) -> None:
        if self._solution is not None and self._solution.explains(features, logits):
            return
        both = torch.cat([features, logits], dim=1)
        while not _written_in(_PRECISIONS[self._precision][0], logits):
            self._precision += 1
        self._moments.add(both, torch.zeros(len(both), dtype=torch.long))
        if self._moments.rows >= self._next_look:
            self._solution = self._solved()
            self._next_look = 2 * self._moments.rows

    def merge(self, other: "HeadFit") -> None:
        self._moments.merge(other._moments)
        self._precision = max(self._precision, other._precision)
        self._solution = None

    def head(self) -> Head:
        """The layer, or an InputError that says why it cannot be known."""
        rows = self._moments.rows
        if rows <= self._size + 1:
            raise InputError(
                f"expected more rows than the {self._size} features of layer {self._layer!r} plus one, to "
                f"recover the last linear layer from them, got {rows}; fit on more rows"
            )
        return self._solution if self._solution and self._solution.rows == rows else self._solved()

    def _solved(self) -> Head:
        size = self._size
        scatter, mean = self._moments.scatter, self._moments.mean
        inner, cross, outer = scatter[:size, :size], scatter[:size, size:], scatter[size:, size:]
        weight, rank = _least_squares(inner, cross)
        total = float(outer.diagonal().sum())
        left = total - 2 * float((weight * cross.T).sum()) + float(((weight @ inner) * weight).sum())
        squares = total + self._moments.rows * float(mean[size:].square().sum())
        allowed = max(_UNEXPLAINED * total, _PRECISIONS[self._precision][1] ** 2 * squares)
        if left > allowed:
            raise InputError(
                f"expected layer {self._layer!r} to determine the logits linearly, as the input of the last "
                f"Linear does, got a share of {left / total:.2g} of their variance unexplained; use "
                "layer='penultimate' of a network that ends in a Linear, without a softmax after it"
            )
        bias = mean[size:] - weight @ mean[:size]
        rounding = math.sqrt(allowed / len(outer) / self._moments.rows)
        return Head(weight, bias, rank, self._moments.rows, rounding)


def _written_in(dtype: torch.dtype, logits: Tensor) -> bool:
    """Whether this type can write all of them; any are written in single precision."""
    return dtype == torch.float32 or bool((logits.to(dtype) == logits).all())


def _least_squares(inner: Tensor, cross: Tensor) -> tuple[Tensor, int]:
    """The smallest weights (C, d) with weight inner = cross', and in how many directions they are known."""
    if amplification(inner) <= _ROUND:  # by far the fastest way, and safe there
        return torch.cholesky_solve(cross, torch.linalg.cholesky(inner)).T, len(inner)
    variances, directions = torch.linalg.eigh(inner)
    known = variances > _RANK * variances[-1]
    directions = directions[:, known]
    return (directions @ ((directions.T @ cross) / variances[known, None])).T, int(known.sum())
