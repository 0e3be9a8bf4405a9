"""Sharper bounds: every value between two linear functions of the input, instead of two numbers.

Plain intervals forget that two neurons see the same input. Here a lower and an upper linear function of the
input go through the network (Zhang et al. 2018, CROWN, run forwards): affine layers combine them, a ReLU that
can go either way is enclosed by two lines, and only at the end, and at each ReLU, is the worst input of the
box taken. This costs as much as a batch of as many inputs as one input has values, so only Linear,
convolution, batch normalisation, average pooling, ReLU, flattening and addition have rules here.
"""

from collections.abc import Callable
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from assay.reshaping.bounds.enclosure import Enclosure, Rule
from assay.reshaping.bounds.interval import UNIT, Interval, in_double, rounding_of
from assay.reshaping.bounds.operations import dropped, same
from assay.reshaping.bounds.products import Apply


class LinearBounds(Enclosure):
    """Per value a lower and an upper function: slopes (inputs, *shape) and offsets (1, *shape) over a box."""

    remedy = "leave sharper=False for this network"

    low_slope: Tensor
    low_offset: Tensor
    high_slope: Tensor
    high_offset: Tensor
    box: Interval

    @staticmethod
    def __new__(
        cls, low_slope: Tensor, low_offset: Tensor, high_slope: Tensor, high_offset: Tensor, box: Interval
    ) -> Self:
        bounds = Enclosure.__new__(cls, low_offset.shape)
        bounds.low_slope, bounds.low_offset = low_slope, low_offset
        bounds.high_slope, bounds.high_offset = high_slope, high_offset
        bounds.box = box
        return bounds

    @classmethod
    def over(cls, box: Interval) -> "LinearBounds":
        """The input itself."""
        count = box.low.numel()
        slope = torch.eye(count, dtype=torch.float64).reshape(count, *box.low.shape[1:])
        return cls(slope, torch.zeros_like(box.low), slope.clone(), torch.zeros_like(box.low), box)

    @property
    def interval(self) -> Interval:
        """The worst inputs of the box, for every value by itself."""
        low, high = self.box.low.flatten(), self.box.high.flatten()

        def reached(slope: Tensor, offset: Tensor, least: Tensor, most: Tensor) -> Tensor:
            rising: Tensor = torch.tensordot(least, slope.clamp(min=0), 1)
            falling: Tensor = torch.tensordot(most, slope.clamp(max=0), 1)
            return offset + rising + falling

        return Interval(
            reached(self.low_slope, self.low_offset, low, high),
            reached(self.high_slope, self.high_offset, high, low),
        )

    def become(self, other: "LinearBounds") -> None:
        self.low_slope.copy_(other.low_slope)
        self.low_offset.copy_(other.low_offset)
        self.high_slope.copy_(other.high_slope)
        self.high_offset.copy_(other.high_offset)

    def scaled(self, low: Tensor, high: Tensor, high_offset: Tensor) -> "LinearBounds":
        return LinearBounds(
            self.low_slope * low,
            self.low_offset * low,
            self.high_slope * high,
            self.high_offset * high + high_offset,
            self.box,
        )

    def lowered(self, by: Tensor) -> "LinearBounds":
        """With a lower function further down."""
        return LinearBounds(self.low_slope, self.low_offset - by, self.high_slope, self.high_offset, self.box)

    def each(self, function: Callable[[Tensor], Tensor]) -> "LinearBounds":
        return LinearBounds(
            function(self.low_slope),
            function(self.low_offset),
            function(self.high_slope),
            function(self.high_offset),
            self.box,
        )


def affine(value: LinearBounds, weight: Tensor, bias: Tensor | None, apply: Apply) -> LinearBounds:
    weight, offset = in_double(weight), in_double(bias)
    positive, negative = weight.clamp(min=0), weight.clamp(max=0)
    sizes = apply(value.interval.magnitude, weight.abs(), None if offset is None else offset.abs())
    error = sizes * rounding_of(weight[0].numel() + 2)
    return LinearBounds(
        apply(value.low_slope, positive, None) + apply(value.high_slope, negative, None),
        apply(value.low_offset, positive, offset) + apply(value.high_offset, negative, None) - error,
        apply(value.high_slope, positive, None) + apply(value.low_slope, negative, None),
        apply(value.high_offset, positive, offset) + apply(value.low_offset, negative, None) + error,
        value.box,
    )


def convolution(function: Callable[..., Tensor]) -> Rule:
    def rule(value: LinearBounds, weight: Tensor, bias: Tensor | None = None, *rest: Any) -> LinearBounds:
        return affine(value, weight, bias, lambda *parts: function(*parts, *rest))

    return rule


def rectified(value: LinearBounds) -> LinearBounds:
    """ReLU: exact where the sign is known; else below max(0, x) by 0 or x, above by the chord."""
    ends = value.interval
    low, high = ends.low, ends.high
    undecided = (low < 0) & (high > 0)
    chord = torch.where(undecided, high / (high - low).clamp(min=1e-300), (low >= 0).double())
    below = torch.where(undecided, (high > -low).double(), (low >= 0).double())
    return value.scaled(below, chord, torch.where(undecided, -chord * low, torch.zeros_like(low)))


def added(left: Any, right: Any, *, alpha: float = 1) -> LinearBounds:
    if not (isinstance(left, LinearBounds) and isinstance(right, LinearBounds)) or alpha != 1:
        raise NotImplementedError
    return LinearBounds(
        left.low_slope + right.low_slope,
        left.low_offset + right.low_offset,
        left.high_slope + right.high_slope,
        left.high_offset + right.high_offset,
        left.box,
    )


def reshaped(function: Callable[..., Tensor]) -> Rule:
    """What an operation does to the shape of one input, done to every slope."""

    def rule(value: LinearBounds, *arguments: Any, **options: Any) -> LinearBounds:
        shape = function(value.low_offset, *arguments, **options).shape[1:]
        return value.each(lambda part: part.reshape(len(part), *shape))

    return rule


def averaged(function: Callable[..., Tensor]) -> Rule:
    """Means, which round with the number of terms, at most the size of the map."""

    def rule(value: LinearBounds, *arguments: Any, **options: Any) -> LinearBounds:
        means = value.each(lambda part: function(part, *arguments, **options))
        sizes = value.interval.magnitude
        error = UNIT * (sizes[0].numel() + 16) * function(sizes, *arguments, **options)
        still = torch.ones_like(error)
        return means.scaled(still, still, error).lowered(error)

    return rule


def normalised(
    value: LinearBounds, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None,
    training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
) -> LinearBounds:  # fmt: skip
    """Batch normalisation in evaluation mode: a diagonal affine layer."""
    if training or running_mean is None:
        raise NotImplementedError
    shape = (1, -1) + (1,) * (value.dim() - 2)
    deviation = torch.sqrt(in_double(running_var) + eps)
    scale = torch.ones_like(deviation) if weight is None else in_double(weight)
    shift = (torch.zeros_like(deviation) if bias is None else in_double(bias)).reshape(shape)
    factor = (scale / deviation).reshape(shape)
    offset = shift - in_double(running_mean).reshape(shape) * factor
    up, down = factor.clamp(min=0), factor.clamp(max=0)
    error = 8 * UNIT * (value.interval.magnitude * factor.abs() + offset.abs() + shift.abs())
    return LinearBounds(
        value.low_slope * up + value.high_slope * down,
        value.low_offset * up + value.high_offset * down + offset - error,
        value.high_slope * up + value.low_slope * down,
        value.high_offset * up + value.low_offset * down + offset + error,
        value.box,
    )


LinearBounds.rules = {
    "linear": lambda value, weight, bias=None: affine(value, weight, bias, F.linear),
    "conv1d": convolution(F.conv1d), "conv2d": convolution(F.conv2d), F.batch_norm: normalised,
    "relu": rectified, "add": added, "dropout": dropped, "dropout2d": dropped, "detach": same,
    "clone": lambda value: value.each(torch.clone),
    **{name: reshaped(getattr(Tensor, name)) for name in ("reshape", "flatten", "squeeze", "unflatten")},
    "view": reshaped(Tensor.reshape), "mean": averaged(torch.mean),
    **{name: averaged(getattr(F, name)) for kind in ("avg_pool", "adaptive_avg_pool")
       for name in (f"{kind}1d", f"{kind}2d")},
}  # fmt: skip
