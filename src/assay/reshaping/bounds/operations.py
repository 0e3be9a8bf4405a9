"""How an interval passes through operations that act on each value, move values about, or pool them.

Operations that never decrease apply to both ends; a product takes the extremes of its corners; GELU and
similar functions dip once, and their true minimum counts if it lies inside. Every result is widened by the
rounding error of single precision, so bounds hold for the network as it runs.
"""

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from scipy.optimize import minimize_scalar
from torch import Tensor

from assay.reshaping.bounds.enclosure import Rule
from assay.reshaping.bounds.interval import UNIT, Interval, as_interval, with_rounding


def never_decreasing(function: Callable[..., Tensor]) -> Rule:
    """For functions that are non-decreasing in every input value, applied to both ends."""

    def rule(value: Interval, /, *arguments: Any, **options: Any) -> Interval:
        if options.pop("return_indices", False):
            raise NotImplementedError
        return with_rounding(value.each(lambda end: function(end, *arguments, **options)))

    return rule


def moving(function: Callable[..., Any]) -> Rule:
    """For functions that only move values around; exact. Some give several tensors."""

    def rule(value: Interval, /, *arguments: Any, **options: Any) -> Any:
        low, high = (function(end, *arguments, **options) for end in (value.low, value.high))
        if isinstance(low, Tensor):
            return Interval(low, high)
        return tuple(Interval(*ends) for ends in zip(low, high, strict=True))

    return rule


def averaging(function: Callable[..., Tensor]) -> Rule:
    """Means and sums of many values, which round with the number of terms, at most the size of the map.

    A computed sum of v is at least the sum of v - g |v| for a small g, which never decreases in v, so each
    end needs its own magnitude only, and what is never negative stays so.
    """

    def rule(value: Interval, /, *arguments: Any, dtype: Any = None, **options: Any) -> Interval:
        share = UNIT * (value.low[0].numel() + 16)

        def end(values: Tensor, sign: float) -> Tensor:
            sizes = function(values.abs(), *arguments, **options)
            return function(values, *arguments, **options) + sign * share * sizes

        return Interval(end(value.low, -1.0), end(value.high, 1.0))

    return rule


def dipping(function: Callable[..., Tensor]) -> Rule:
    """For functions that fall to one minimum and rise from there (GELU, SiLU, Mish, Hardswish)."""

    def rule(value: Interval, **options: Any) -> Interval:
        lowest = _lowest(function, tuple(sorted(options.items())))
        ends = value.each(lambda end: function(end, **options))
        error = _rounding_of_dip(value.low, ends.low), _rounding_of_dip(value.high, ends.high)
        floor = function(torch.tensor(lowest, dtype=torch.float64), **options)
        inside = (value.low <= lowest) & (value.high >= lowest)
        # The minimum is flat to second order; 1e-9 in its place is far below the widening.
        least = torch.minimum(ends.low - error[0], ends.high - error[1])
        most = torch.maximum(ends.low + error[0], ends.high + error[1])
        return Interval(torch.where(inside, floor * (1 + 16 * UNIT), least), most)

    return rule


def _rounding_of_dip(place: Tensor, value: Tensor) -> Tensor:
    """In single precision 1 + erf(x) keeps no digits where x is far below zero: an error of x UNIT."""
    return UNIT * (16 * value.abs() + 4 * place.clamp(-8, 0).abs())


@cache
def _lowest(function: Callable[..., Tensor], options: tuple[tuple[str, Any], ...]) -> float:
    """Where the function has its minimum."""

    def at(place: float) -> float:
        return float(function(torch.tensor(place, dtype=torch.float64), **dict(options)))

    return float(minimize_scalar(at, bounds=(-3.0, 0.0), method="bounded", options={"xatol": 1e-9}).x)


def added(left: Any, right: Any, *, alpha: float = 1) -> Interval:
    a, b = as_interval(left), as_interval(right)
    b = b if alpha == 1 else multiplied(b, alpha)
    return with_rounding(Interval(a.low + b.low, a.high + b.high))


def subtracted(left: Any, right: Any, *, alpha: float = 1) -> Interval:
    return added(left, negated(as_interval(right)), alpha=alpha)


def subtracted_from(left: Any, right: Any) -> Interval:
    return subtracted(right, left)


def negated(value: Interval) -> Interval:
    return Interval(-value.high, -value.low)


def multiplied(left: Any, right: Any) -> Interval:
    if left is right:
        return squared(left)
    a, b = as_interval(left), as_interval(right)
    corners = [a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high]
    low, high = corners[0], corners[0]
    for corner in corners[1:]:
        low, high = torch.minimum(low, corner), torch.maximum(high, corner)
    return with_rounding(Interval(low, high))


def added_multiple(start: Any, left: Any, right: Any, *, value: float = 1) -> Interval:
    return added(start, multiplied(left, right), alpha=value)


def divided(left: Any, right: Any, *, rounding_mode: str | None = None) -> Interval:
    if rounding_mode is not None:
        raise NotImplementedError
    return multiplied(left, inverted(as_interval(right)))


def divided_from(left: Any, right: Any) -> Interval:
    return divided(right, left)


def inverted(value: Interval) -> Interval:
    if bool(((value.low <= 0) & (value.high >= 0)).any()):
        raise NotImplementedError  # it can go anywhere
    return with_rounding(Interval(1 / value.high, 1 / value.low))


def absolute(value: Interval) -> Interval:
    crosses = (value.low < 0) & (value.high > 0)
    least = torch.minimum(value.low.abs(), value.high.abs())
    return Interval(torch.where(crosses, 0.0, least), value.magnitude)


def squared(value: Interval) -> Interval:
    return with_rounding(absolute(value).each(torch.square))


def powered(value: Any, exponent: Any) -> Interval:
    if not isinstance(value, Interval) or not isinstance(exponent, int | float):
        raise NotImplementedError
    if exponent == 0.5:
        return rooted(value)
    if exponent == -0.5:
        return inverted(rooted(value))
    if exponent != int(exponent) or exponent < 1:
        raise NotImplementedError
    base = absolute(value) if exponent % 2 == 0 else value
    return with_rounding(base.each(lambda end: end ** int(exponent)), 16 * exponent)


def rooted(value: Interval) -> Interval:
    if bool((value.low < 0).any()):
        raise NotImplementedError  # NaN
    return with_rounding(value.each(torch.sqrt))


def positive_only(function: Callable[..., Tensor]) -> Rule:
    """For the logarithm, which has no value at zero and below."""

    def rule(value: Interval) -> Interval:
        if bool((value.low <= 0).any()):
            raise NotImplementedError
        return never_decreasing(function)(value)  # type: ignore[no-any-return]

    return rule


def oscillating(angle: Interval) -> Interval:
    """Sine and cosine, whatever the angle."""
    one = torch.ones_like(angle.low)
    return with_rounding(Interval(-one, one))


def chosen(condition: Any, left: Any, right: Any) -> Interval:
    if isinstance(condition, Interval):
        raise NotImplementedError
    a, b = as_interval(left), as_interval(right)
    return Interval(torch.where(condition, a.low, b.low), torch.where(condition, a.high, b.high))


def masked(value: Any, mask: Any, number: Any) -> Interval:
    return chosen(mask, number, value)


def larger(left: Any, right: Any) -> Interval:
    a, b = as_interval(left), as_interval(right)
    return Interval(torch.maximum(a.low, b.low), torch.maximum(a.high, b.high))


def smaller(left: Any, right: Any) -> Interval:
    return negated(larger(negated(as_interval(left)), negated(as_interval(right))))


def clamped(value: Interval, *arguments: Any, **options: Any) -> Interval:
    limits = [*arguments, *options.values()]
    if any(isinstance(limit, Tensor) for limit in limits):
        raise NotImplementedError
    return value.each(lambda end: torch.clamp(end, *arguments, **options))


def largest(value: Interval, dim: Any = None, keepdim: bool = False) -> Any:
    """`max` and `amax`; which one it is, is not known."""
    if isinstance(dim, Tensor):
        return larger(value, dim)
    if dim is None:
        return value.each(torch.max)
    return value.each(lambda end: torch.amax(end, dim, keepdim))


def largest_of_row(value: Interval, dim: Any = None, keepdim: bool = False) -> Any:
    """`max` also says where; code that asks for that does not get it."""
    found = largest(value, dim, keepdim)
    return found if dim is None or isinstance(dim, Tensor) else (found, None)


def length(value: Interval, p: Any = 2, dim: Any = None, keepdim: bool = False) -> Interval:
    """The Euclidean norm."""
    if p not in (2, 2.0, "fro", None):
        raise NotImplementedError
    sizes = absolute(value)
    terms = value.low.numel()
    norm = sizes.each(lambda end: torch.linalg.vector_norm(end, 2, dim, keepdim))
    return with_rounding(norm, terms + 16)


def concatenated(parts: Sequence[Any], dim: int = 0) -> Interval:
    values = [as_interval(part) for part in parts]
    return Interval(torch.cat([v.low for v in values], dim), torch.cat([v.high for v in values], dim))


def stacked(parts: Sequence[Any], dim: int = 0) -> Interval:
    values = [as_interval(part) for part in parts]
    return Interval(torch.stack([v.low for v in values], dim), torch.stack([v.high for v in values], dim))


def placed_in(value: Any, index: Any, other: Any) -> None:
    """value[index] = other, in place."""
    if not isinstance(value, Interval):
        raise NotImplementedError  # a plain tensor cannot hold an interval
    inner = as_interval(other)
    value.low[index] = inner.low
    value.high[index] = inner.high
    value.rows = None


def cast(value: Interval, *arguments: Any, **options: Any) -> Interval:
    """To another device, or to single or double precision."""
    kinds = [kind for kind in (*arguments, *options.values()) if isinstance(kind, torch.dtype)]
    if any(kind not in (torch.float32, torch.float64) for kind in kinds):
        raise NotImplementedError
    return value


def same(value: Any, *_: Any, **__: Any) -> Any:
    return value


def dropped(value: Interval, p: float = 0.5, training: bool = True, **_: Any) -> Interval:
    if training and p > 0:
        raise NotImplementedError  # random
    return value


def leaky(value: Interval, negative_slope: float = 0.01) -> Interval:
    if negative_slope < 0 or not math.isfinite(negative_slope):
        raise NotImplementedError
    result: Interval = never_decreasing(F.leaky_relu)(value, negative_slope)
    return result


def parametric(value: Interval, weight: Tensor) -> Interval:
    if bool((weight < 0).any()):
        raise NotImplementedError
    result: Interval = never_decreasing(F.prelu)(value, weight.detach().double())
    return result


def gated(value: Interval, dim: int = -1) -> Interval:
    """GLU: one half times the sigmoid of the other."""
    left, right = moving(torch.chunk)(value, 2, dim)
    return multiplied(left, never_decreasing(torch.sigmoid)(right))


def resized(value: Interval, *arguments: Any, mode: str = "nearest", **options: Any) -> Interval:
    if mode not in ("nearest", "nearest-exact", "linear", "bilinear", "trilinear", "area"):
        raise NotImplementedError  # cubic weights are negative in places
    options["mode"] = mode
    rule = averaging(lambda end: F.interpolate(end, *arguments, **options))
    result: Interval = rule(value)
    return result


def zeros_like(value: Interval, *_: Any, **__: Any) -> Tensor:
    return torch.zeros(value.shape)


def ones_like(value: Interval, *_: Any, **__: Any) -> Tensor:
    return torch.ones(value.shape)


def several(*names: str) -> dict[str, Any]:
    """Functions of torch or of torch.nn.functional by name."""
    return {name: getattr(torch, name, None) or getattr(F, name) for name in names}


_RISING = {
    "hardtanh": F.hardtanh, "hardsigmoid": F.hardsigmoid, "softsign": F.softsign, "elu": F.elu,
    "log_sigmoid": F.logsigmoid, "logsigmoid": F.logsigmoid, "softplus": F.softplus,
    "max_pool1d": F.max_pool1d, "max_pool2d": F.max_pool2d, "max_pool3d": F.max_pool3d,
    "adaptive_max_pool1d": F.adaptive_max_pool1d, "adaptive_max_pool2d": F.adaptive_max_pool2d,
    "adaptive_max_pool3d": F.adaptive_max_pool3d,
    **several("relu", "relu6", "selu", "celu", "sigmoid", "tanh", "exp", "expm1", "atan", "erf", "asinh"),
    **several("floor", "ceil", "round", "trunc"),
}  # fmt: skip
_AVERAGING = {
    "mean": torch.mean, "sum": torch.sum,
    **{name: getattr(F, name) for kind in ("avg_pool", "adaptive_avg_pool")
       for name in (f"{kind}1d", f"{kind}2d", f"{kind}3d")},
}  # fmt: skip
_MOVING: dict[Any, Callable[..., Any]] = {
    **{name: getattr(Tensor, name) for name in (
        "flatten", "reshape", "squeeze", "unsqueeze", "permute", "transpose", "swapaxes", "swapdims",
        "movedim", "unflatten", "tile", "narrow", "select", "index_select", "gather", "roll", "flip", "chunk",
        "split", "unbind", "tensor_split", "ravel", "triu", "tril", "diagonal", "clone", "expand",
        "expand_as", "repeat", "contiguous", "reshape_as",
    )},
    **several("pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "pad"),
    F.unfold: F.unfold, Tensor.unfold: Tensor.unfold, "view": Tensor.reshape, "view_as": Tensor.reshape_as,
    "T": lambda end: end.T, "mT": lambda end: end.mT, "__getitem__": lambda end, index: end[index],
}  # fmt: skip
_SAME = ("detach", "float", "double", "cpu", "cuda", "requires_grad_", "alias", "lift_fresh_copy")
_DROPOUT = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_dropout")

RULES: dict[Any, Rule] = {
    **{name: never_decreasing(function) for name, function in _RISING.items()},
    **{name: averaging(function) for name, function in _AVERAGING.items()},
    **{name: moving(function) for name, function in _MOVING.items()},
    **{name: dipping(getattr(F, name)) for name in ("gelu", "silu", "mish", "hardswish")},
    **dict.fromkeys(_SAME, same), **dict.fromkeys(_DROPOUT, dropped),
    **dict.fromkeys(("add", "__radd__"), added), **dict.fromkeys(("sub", "subtract"), subtracted),
    **dict.fromkeys(("rsub", "__rsub__"), subtracted_from), "neg": negated, "negative": negated,
    **dict.fromkeys(("mul", "multiply", "__rmul__"), multiplied),
    "addcmul": added_multiple, **dict.fromkeys(("div", "divide", "true_divide"), divided),
    **dict.fromkeys(("__rdiv__", "__rtruediv__"), divided_from), "reciprocal": inverted,
    "abs": absolute, "square": squared, "pow": powered, "sqrt": rooted,
    "rsqrt": lambda value: inverted(rooted(value)), "log": positive_only(torch.log),
    "sin": oscillating, "cos": oscillating, "leaky_relu": leaky, "prelu": parametric, "glu": gated,
    "where": chosen, "masked_fill": masked, "maximum": larger, "minimum": smaller,
    "amax": largest, "max": largest_of_row, "clamp": clamped, "clip": clamped,
    "clamp_min": clamped, "clamp_max": lambda value, limit: clamped(value, max=limit),
    "norm": length, "cat": concatenated, "concat": concatenated, "stack": stacked,
    "interpolate": resized, "upsample": resized, "__setitem__": placed_in,
    "to": cast, "type": cast, "type_as": same, "zeros_like": zeros_like, "ones_like": ones_like,
}  # fmt: skip
