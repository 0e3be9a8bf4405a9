"""How an interval passes through each operation of a network.

An interval is a pair of tensors in double precision, with a batch of one. Affine operations move its middle
and scale its radius by absolute weights; operations that never decrease apply to both ends; a product takes
the extremes of its corners; GELU and similar functions dip once, and their true minimum counts if it lies
inside. Every result is widened by the rounding error of single precision, so bounds hold for the network as
it runs.
"""

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from scipy.optimize import minimize_scalar
from torch import Tensor, nn

UNIT = 2.0**-24  # half the distance between neighbouring single-precision numbers around one


@dataclass(frozen=True, eq=False)
class Interval:
    """Every value lies between low and high."""

    low: Tensor
    high: Tensor

    @property
    def magnitude(self) -> Tensor:
        return torch.maximum(self.low.abs(), self.high.abs())

    def widened(self, error: Tensor | float) -> "Interval":
        return Interval(self.low - error, self.high + error)


Rule = Callable[..., Any]


def affine(
    value: Interval,
    weight: Tensor,
    bias: Tensor | None,
    apply: Callable[[Tensor, Tensor, Tensor | None], Tensor],
) -> Interval:
    """`apply(x, weight, bias)` over an interval, with the rounding error of its sums in single precision.

    A sum of n products in any order is wrong by at most n UNIT / (1 - n UNIT) times the sum of magnitudes.
    """
    weight, bias = weight.detach().double(), None if bias is None else bias.detach().double()
    middle = apply((value.low + value.high) / 2, weight, bias)
    radius = apply((value.high - value.low) / 2, weight.abs(), None)
    sizes = apply(value.magnitude, weight.abs(), None if bias is None else bias.abs())
    terms = weight[0].numel() + 2
    return Interval(middle - radius, middle + radius).widened(sizes * (terms * UNIT / (1 - terms * UNIT)))


def never_decreasing(function: Callable[..., Tensor]) -> Rule:
    """For functions that are non-decreasing in every input value, applied to both ends."""

    def rule(value: Interval, /, *arguments: Any, **options: Any) -> Interval:
        low, high = function(value.low, *arguments, **options), function(value.high, *arguments, **options)
        return _with_rounding(Interval(low, high))

    return rule


def moving(function: Callable[..., Any]) -> Rule:
    """For functions that only move values around; exact."""

    def rule(value: Interval, /, *arguments: Any, **options: Any) -> Interval:
        return Interval(
            function(value.low, *arguments, **options), function(value.high, *arguments, **options)
        )

    return rule


def dipping(function: Callable[..., Tensor]) -> Rule:
    """For functions that fall to one minimum and rise from there (GELU, SiLU, Mish, Hardswish)."""

    def rule(value: Interval, /, **options: Any) -> Interval:
        lowest = float(
            minimize_scalar(
                lambda x: float(function(torch.tensor(x, dtype=torch.float64), **options)),
                bounds=(-3.0, 0.0),
                method="bounded",
                options={"xatol": 1e-9},
            ).x
        )
        ends = function(value.low, **options), function(value.high, **options)
        inside = (value.low <= lowest) & (value.high >= lowest)
        floor = function(torch.tensor(lowest, dtype=torch.float64), **options)
        low = torch.where(inside, floor, torch.minimum(*ends))
        # The minimum is flat to second order; 1e-9 in its place is far below the widening.
        return _with_rounding(Interval(low, torch.maximum(*ends)))

    return rule


def linear(value: Interval, layer: Any) -> Interval:
    return affine(value, layer.weight, layer.bias, F.linear)


def convolution(value: Interval, layer: Any) -> Interval:
    """Conv and ConvTranspose in one to three dimensions, zero padding or any padding the layer knows."""
    if layer.padding_mode != "zeros":
        pad = moving(F.pad)(value, layer._reversed_padding_repeated_twice, mode=layer.padding_mode)
        value, padding = pad, 0
    else:
        padding = layer.padding
    name = f"conv{layer.weight.ndim - 2}d"
    return affine(
        value,
        layer.weight,
        layer.bias,
        lambda x, weight, bias: getattr(F, name)(
            x, weight, bias, layer.stride, padding, layer.dilation, layer.groups
        ),
    )


def batch_norm(value: Interval, layer: Any) -> Interval:
    """In evaluation mode: one factor and one offset per channel."""
    shape = (1, -1) + (1,) * (value.low.ndim - 2)
    mean, variance = layer.running_mean.double(), layer.running_var.double()
    weight = torch.ones_like(mean) if layer.weight is None else layer.weight.detach().double()
    bias = torch.zeros_like(mean) if layer.bias is None else layer.bias.detach().double()
    factor = (weight / torch.sqrt(variance + layer.eps)).reshape(shape)
    offset, mean = bias.reshape(shape), mean.reshape(shape)
    ends = (value.low - mean) * factor + offset, (value.high - mean) * factor + offset
    # Frameworks fold the statistics in different orders; each step rounds on these magnitudes.
    error = 8 * UNIT * ((value.magnitude + mean.abs()) * factor.abs() + offset.abs())
    return Interval(torch.minimum(*ends), torch.maximum(*ends)).widened(error)


def added(left: Any, right: Any, *, alpha: float = 1, **_: Any) -> Interval:
    return _with_rounding(_plus(_interval(left), _times(_interval(right), alpha)))


def subtracted(left: Any, right: Any, *, alpha: float = 1, **_: Any) -> Interval:
    return _with_rounding(_plus(_interval(left), _times(_interval(right), -alpha)))


def multiplied(left: Any, right: Any) -> Interval:
    a, b = _interval(left), _interval(right)
    corners = [a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high]
    low, high = corners[0], corners[0]
    for corner in corners[1:]:
        low, high = torch.minimum(low, corner), torch.maximum(high, corner)
    return _with_rounding(Interval(low, high))


def divided(left: Any, right: Any, **options: Any) -> Interval:
    if isinstance(right, Interval) or options:
        raise NotImplementedError
    return multiplied(left, 1 / torch.as_tensor(right, dtype=torch.float64))


def concatenated(parts: Any, dim: int = 0, **_: Any) -> Interval:
    values = [_interval(part) for part in parts]
    return Interval(torch.cat([v.low for v in values], dim), torch.cat([v.high for v in values], dim))


def _interval(value: Any) -> Interval:
    if isinstance(value, Interval):
        return value
    constant = torch.as_tensor(value).detach().double()
    return Interval(constant, constant)


def _plus(a: Interval, b: Interval) -> Interval:
    return Interval(a.low + b.low, a.high + b.high)


def _times(value: Interval, factor: float) -> Interval:
    ends = value.low * factor, value.high * factor
    return Interval(torch.minimum(*ends), torch.maximum(*ends))


def _with_rounding(value: Interval) -> Interval:
    """Widened by what a few single-precision operations may add; exact zeros stay (a ReLU's floor)."""
    return Interval(value.low - 16 * UNIT * value.low.abs(), value.high + 16 * UNIT * value.high.abs())


def _averaged(function: Callable[..., Tensor]) -> Rule:
    """Means and sums of many values, which round with the number of terms, at most the size of the map.

    A computed sum of v is at least the sum of v - g |v| for a small g, which never decreases in v, so each
    end needs its own magnitude only, and what is never negative stays so.
    """

    def rule(value: Interval, /, *arguments: Any, **options: Any) -> Interval:
        share = UNIT * (value.low[0].numel() + 16)

        def end(values: Tensor, sign: float) -> Tensor:
            sizes = function(values.abs(), *arguments, **options)
            return function(values, *arguments, **options) + sign * share * sizes

        return Interval(end(value.low, -1.0), end(value.high, 1.0))

    return rule


def _clamped(value: Interval, /, *arguments: Any, **options: Any) -> Interval:
    return Interval(
        torch.clamp(value.low, *arguments, **options), torch.clamp(value.high, *arguments, **options)
    )


def _same(value: Any, *_: Any, **__: Any) -> Any:
    return value


def _leaky(value: Interval, negative_slope: float = 0.01, inplace: bool = False) -> Interval:
    if negative_slope < 0 or not math.isfinite(negative_slope):
        raise NotImplementedError
    result: Interval = never_decreasing(F.leaky_relu)(value, negative_slope)
    return result


RISING = (
    F.relu, F.relu6, F.elu, F.selu, F.celu, F.softplus, F.hardtanh, F.hardsigmoid, F.logsigmoid, F.softsign,
    F.sigmoid, F.tanh, torch.relu, torch.sigmoid, torch.tanh, torch.exp, torch.atan,
    F.max_pool1d, F.max_pool2d, F.max_pool3d, F.adaptive_max_pool1d, F.adaptive_max_pool2d,
)  # fmt: skip
AVERAGING = (
    F.avg_pool1d, F.avg_pool2d, F.avg_pool3d, F.adaptive_avg_pool1d, F.adaptive_avg_pool2d,
    F.adaptive_avg_pool3d, torch.mean,
)  # fmt: skip
MOVING = (
    torch.flatten,
    torch.reshape,
    torch.squeeze,
    torch.unsqueeze,
    torch.permute,
    torch.transpose,
    operator.getitem,
    F.pad,
)
DIPPING = (F.gelu, F.silu, F.mish, F.hardswish)
METHODS: dict[str, Rule] = {
    **{name: moving(getattr(Tensor, name)) for name in (
        "view", "reshape", "flatten", "squeeze", "unsqueeze", "permute", "transpose", "contiguous", "expand",
    )},
    **{name: never_decreasing(getattr(Tensor, name)) for name in ("relu", "sigmoid", "tanh", "exp")},
    "clamp": _clamped,
    "mean": _averaged(Tensor.mean),
    "sum": _averaged(Tensor.sum),
    "add": added, "add_": added, "sub": subtracted, "mul": multiplied, "div": divided,
    "detach": _same, "clone": _same, "float": _same, "to": _same,
}  # fmt: skip
FUNCTIONS: dict[Any, Rule] = {
    **{function: never_decreasing(function) for function in RISING},
    **{function: _averaged(function) for function in AVERAGING},
    **{function: moving(function) for function in MOVING},
    **{function: dipping(function) for function in DIPPING},
    operator.add: added, operator.iadd: added, torch.add: added,
    operator.sub: subtracted, operator.isub: subtracted, torch.sub: subtracted,
    operator.mul: multiplied, operator.imul: multiplied, torch.mul: multiplied,
    operator.truediv: divided, torch.div: divided,
    torch.cat: concatenated, torch.concat: concatenated, torch.clamp: _clamped, F.leaky_relu: _leaky,
    F.dropout: _same, F.dropout2d: _same,
}  # fmt: skip


def module_rule(layer: nn.Module) -> Rule | None:
    """The rule of a layer, which takes only the interval; None if there is none."""
    if isinstance(layer, nn.Linear):
        return lambda value: linear(value, layer)
    if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return lambda value: convolution(value, layer)
    if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d) and layer.track_running_stats:
        return lambda value: batch_norm(value, layer)
    if isinstance(layer, _IDENTITY_LAYERS):
        return _same
    if isinstance(layer, _MOVING_LAYERS):
        return moving(layer)
    if isinstance(layer, _AVERAGING_LAYERS):
        return _averaged(layer)
    if isinstance(layer, nn.LeakyReLU):
        return lambda value: _leaky(value, layer.negative_slope)
    if isinstance(layer, nn.PReLU):
        return lambda value: _parametric(value, layer)
    if isinstance(layer, _RISING_LAYERS):
        return never_decreasing(_in_double(layer))
    return _dipping_rule(layer)


_IDENTITY_LAYERS = (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)
_MOVING_LAYERS = (
    nn.Flatten,
    nn.Unflatten,
    nn.PixelShuffle,
    nn.ZeroPad2d,
    nn.ReflectionPad2d,
    nn.ReplicationPad2d,
)
_AVERAGING_LAYERS = (
    nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d,
    nn.AdaptiveAvgPool3d,
)  # fmt: skip
_RISING_LAYERS = (
    nn.ReLU, nn.ReLU6, nn.Tanh, nn.Sigmoid, nn.ELU, nn.SELU, nn.CELU, nn.Softplus, nn.Hardtanh,
    nn.Hardsigmoid, nn.LogSigmoid, nn.Softsign, nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d,
    nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d,
)  # fmt: skip


def _in_double(layer: nn.Module) -> Callable[..., Tensor]:
    if getattr(layer, "inplace", False):
        return lambda value: layer(value.clone())
    return layer


def _parametric(value: Interval, layer: nn.PReLU) -> Interval:
    weight = layer.weight.detach().double()
    if bool((weight < 0).any()):
        raise NotImplementedError
    result: Interval = never_decreasing(F.prelu)(value, weight)
    return result


def _dipping_rule(layer: nn.Module) -> Rule | None:
    if isinstance(layer, nn.GELU):
        return lambda value: dipping(F.gelu)(value, approximate=layer.approximate)
    for kind, function in ((nn.SiLU, F.silu), (nn.Mish, F.mish), (nn.Hardswish, F.hardswish)):
        if isinstance(layer, kind):
            return dipping(function)
    return None
