"""Sharper bounds: every value between two linear functions of the input, instead of two numbers.

Plain intervals forget that two neurons see the same input. Here a lower and an upper linear function of the
input go through the network (Zhang et al. 2018, CROWN, run forwards): affine layers combine them, a ReLU that
can go either way is enclosed by two lines, and only at the end, and at each ReLU, is the worst input of the
box taken. This costs as much as a batch of as many inputs as one input has values, so only Linear,
convolution, batch normalisation, average pooling, ReLU, flattening and addition have rules here.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from assay.reshaping.bounds.operations import AVERAGING, UNIT, Interval

Affine = Callable[[Tensor, Tensor, Tensor | None], Tensor]


@dataclass(frozen=True, eq=False)
class LinearBounds:
    """Per value a lower and an upper function: slopes (inputs, *shape) and offsets (1, *shape) over a box."""

    low_slope: Tensor
    low_offset: Tensor
    high_slope: Tensor
    high_offset: Tensor
    box: Interval

    @classmethod
    def over(cls, box: Interval) -> "LinearBounds":
        """The input itself."""
        count = box.low.numel()
        slope = torch.eye(count, dtype=torch.float64).reshape(count, *box.low.shape[1:])
        return cls(slope, torch.zeros_like(box.low), slope, torch.zeros_like(box.low), box)

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

    @property
    def low(self) -> Tensor:
        """For questions about the shape."""
        return self.low_offset

    def scaled(self, low: Tensor, high: Tensor, high_offset: Tensor) -> "LinearBounds":
        return LinearBounds(
            self.low_slope * low,
            self.low_offset * low,
            self.high_slope * high,
            self.high_offset * high + high_offset,
            self.box,
        )

    def each(self, function: Callable[[Tensor], Tensor]) -> "LinearBounds":
        return LinearBounds(
            function(self.low_slope),
            function(self.low_offset),
            function(self.high_slope),
            function(self.high_offset),
            self.box,
        )


def affine(value: LinearBounds, weight: Tensor, bias: Tensor | None, apply: Affine) -> LinearBounds:
    weight = weight.detach().double()
    positive, negative = weight.clamp(min=0), weight.clamp(max=0)
    offset = None if bias is None else bias.detach().double()
    terms = weight[0].numel() + 2
    sizes = apply(value.interval.magnitude, weight.abs(), None if offset is None else offset.abs())
    error = sizes * (terms * UNIT / (1 - terms * UNIT))
    return LinearBounds(
        apply(value.low_slope, positive, None) + apply(value.high_slope, negative, None),
        apply(value.low_offset, positive, offset) + apply(value.high_offset, negative, None) - error,
        apply(value.high_slope, positive, None) + apply(value.low_slope, negative, None),
        apply(value.high_offset, positive, offset) + apply(value.low_offset, negative, None) + error,
        value.box,
    )


def rectified(value: LinearBounds, *_: Any, **__: Any) -> LinearBounds:
    """ReLU: exact where the sign is known; else below max(0, x) by 0 or x, above by the chord."""
    ends = value.interval
    low, high = ends.low, ends.high
    undecided = (low < 0) & (high > 0)
    chord = torch.where(undecided, high / (high - low).clamp(min=1e-300), (low >= 0).double())
    below = torch.where(undecided, (high > -low).double(), (low >= 0).double())
    return value.scaled(below, chord, torch.where(undecided, -chord * low, torch.zeros_like(low)))


def added(left: Any, right: Any) -> LinearBounds:
    if not (isinstance(left, LinearBounds) and isinstance(right, LinearBounds)):
        raise NotImplementedError
    return LinearBounds(
        left.low_slope + right.low_slope,
        left.low_offset + right.low_offset,
        left.high_slope + right.high_slope,
        left.high_offset + right.high_offset,
        left.box,
    )


def reshaped(function: Callable[..., Tensor]) -> Callable[..., LinearBounds]:
    """What an operation does to the shape of one input, done to every slope."""

    def rule(value: LinearBounds, /, *arguments: Any, **options: Any) -> LinearBounds:
        shape = function(value.low_offset, *arguments, **options).shape[1:]
        return value.each(lambda part: part.reshape(len(part), *shape))

    return rule


def averaged(function: Callable[..., Tensor]) -> Callable[..., LinearBounds]:
    return lambda value, *arguments, **options: value.each(lambda part: function(part, *arguments, **options))


def _same(value: Any, *_: Any, **__: Any) -> Any:
    return value


def module_rule(layer: nn.Module) -> Callable[[Any], LinearBounds] | None:
    """The rule of a layer; None if there is none."""
    if isinstance(layer, nn.Linear):
        return lambda value: affine(value, layer.weight, layer.bias, F.linear)
    if isinstance(layer, nn.Conv1d | nn.Conv2d) and layer.padding_mode == "zeros":
        apply: Any = F.conv1d if isinstance(layer, nn.Conv1d) else F.conv2d
        rest = (layer.stride, layer.padding, layer.dilation, layer.groups)
        return lambda value: affine(value, layer.weight, layer.bias, lambda x, w, b: apply(x, w, b, *rest))
    if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d) and layer.track_running_stats:
        return lambda value: _normalised(value, layer)
    if isinstance(layer, nn.ReLU):
        return rectified
    if isinstance(layer, nn.Flatten | nn.Unflatten):
        return reshaped(layer)
    if isinstance(layer, nn.AvgPool1d | nn.AvgPool2d | nn.AdaptiveAvgPool1d | nn.AdaptiveAvgPool2d):
        return averaged(layer)
    return _same if isinstance(layer, nn.Identity | nn.Dropout | nn.Dropout1d | nn.Dropout2d) else None


def _normalised(value: LinearBounds, layer: Any) -> LinearBounds:
    """Batch normalisation in evaluation mode: a diagonal affine layer."""
    shape = (1, -1) + (1,) * (value.low_offset.ndim - 2)
    deviation = torch.sqrt(layer.running_var.double() + layer.eps)
    weight = torch.ones_like(deviation) if layer.weight is None else layer.weight.detach().double()
    bias = torch.zeros_like(deviation) if layer.bias is None else layer.bias.detach().double()
    factor = (weight / deviation).reshape(shape)
    offset = bias.reshape(shape) - layer.running_mean.double().reshape(shape) * factor
    up, down = factor.clamp(min=0), factor.clamp(max=0)
    error = 8 * UNIT * (value.interval.magnitude * factor.abs() + offset.abs() + bias.reshape(shape).abs())
    return LinearBounds(
        value.low_slope * up + value.high_slope * down,
        value.low_offset * up + value.high_offset * down + offset - error,
        value.high_slope * up + value.low_slope * down,
        value.high_offset * up + value.low_offset * down + offset + error,
        value.box,
    )


FUNCTIONS: dict[Any, Callable[..., Any]] = {
    F.relu: rectified, torch.relu: rectified,
    operator.add: added, operator.iadd: added, torch.add: added,
    F.dropout: _same, F.dropout2d: _same,
    **{function: reshaped(function) for function in (torch.flatten, torch.reshape, torch.squeeze)},
    **{function: averaged(function) for function in AVERAGING},
}  # fmt: skip
METHODS: dict[str, Callable[..., Any]] = {
    **{name: reshaped(getattr(Tensor, name)) for name in ("view", "reshape", "flatten", "squeeze")},
    "relu": rectified, "add": added, "add_": added, "mean": averaged(Tensor.mean),
}  # fmt: skip
