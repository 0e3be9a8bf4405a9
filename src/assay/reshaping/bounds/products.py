"""How an interval passes through sums of products: affine layers, products of two intervals, attention.

Affine operations move the middle of an interval and scale its radius by absolute weights. A product of two
intervals encloses middle and radius as Rump 1999 does. Attention is a weighted mean of values: it stays
within their hull, whatever the weights, and closer where the scores leave the weights little room.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from assay.reshaping.bounds.enclosure import Rule
from assay.reshaping.bounds.interval import UNIT, Ball, Interval, Shares, as_interval, in_double, rounding_of
from assay.reshaping.bounds.operations import added, moving

Apply = Callable[[Tensor, Tensor, Tensor | None], Tensor]

SMALLEST = 2.0**-126
"""Below it single precision may round to zero."""

_masks_vary: ContextVar[bool] = ContextVar("masks_vary", default=False)

SCALING = 8
"""Roundings of a score besides those of its sum: its factor is applied before, after or in two steps."""


def affine(value: Interval, weight: Tensor, bias: Tensor | None, apply: Apply, terms: int) -> Interval:
    """`apply(x, weight, bias)` over an interval, with the rounding error of its sums in single precision.

    A sum of n products in any order is wrong by at most n UNIT / (1 - n UNIT) times the sum of magnitudes.
    """
    weight, bias = in_double(weight), in_double(bias)
    middle = apply((value.low + value.high) / 2, weight, bias)
    radius = apply((value.high - value.low) / 2, weight.abs(), None)
    sizes = apply(value.magnitude, weight.abs(), None if bias is None else bias.abs())
    return Interval(middle - radius, middle + radius).widened(sizes * rounding_of(terms + 2))


def linear(value: Any, weight: Any, bias: Any = None) -> Interval:
    if not isinstance(value, Interval):
        raise NotImplementedError  # weights that depend on the input
    result = affine(value, weight, bias, F.linear, weight.shape[-1])
    if not isinstance(value.rows, Ball):
        return result
    # |w' (c + s z)| <= |w' c| + ||w s||_2 ||z||_2, far less than the sum of |w s| times the largest |z|.
    weight, bias = in_double(weight), in_double(bias)
    middle = F.linear(value.rows.centre, weight, bias)
    radius = value.rows.radius * torch.linalg.vector_norm(weight * value.rows.scale, dim=-1)
    sizes = F.linear(value.magnitude, weight.abs(), None if bias is None else bias.abs())
    inside = Interval(middle - radius, middle + radius).widened(sizes * rounding_of(weight.shape[-1] + 2))
    return result.within(inside)


def convolution(name: str) -> Rule:
    """Convolutions in one to three dimensions, also transposed."""
    function = getattr(F, name)

    def rule(value: Any, weight: Any, bias: Any = None, *arguments: Any, **options: Any) -> Interval:
        if not isinstance(value, Interval):
            raise NotImplementedError
        # Of a transposed one, the first axis of the weights are the channels it takes.
        terms = weight[:, 0].numel() if "transpose" in name else weight[0].numel()
        return affine(value, weight, bias, lambda *parts: function(*parts, *arguments, **options), terms)

    return rule


def general_convolution(
    value: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int, *_: Any,
) -> Interval:  # fmt: skip
    """As in graphs of `torch.export`."""
    if transposed:
        raise NotImplementedError
    rule = convolution(f"conv{weight.ndim - 2}d")
    result: Interval = rule(value, weight, bias, stride, padding, dilation, groups)
    return result


def product(apply: Callable[[Tensor, Tensor], Tensor], left: Any, right: Any, terms: int) -> Interval:
    """A bilinear product of two intervals, such as a matrix product (Rump 1999)."""
    a, b = as_interval(left), as_interval(right)
    middles = (a.low + a.high) / 2, (b.low + b.high) / 2
    radii = (a.high - a.low) / 2, (b.high - b.low) / 2
    middle = apply(*middles)
    radius = apply(middles[0].abs(), radii[1]) + apply(radii[0], middles[1].abs() + radii[1])
    sizes = apply(a.magnitude, b.magnitude)
    return Interval(middle - radius, middle + radius).widened(sizes * rounding_of(terms + 2))


def matrix_product(left: Any, right: Any) -> Interval:
    if isinstance(left, Interval) and isinstance(left.rows, Shares) and right.dim() > 1:
        return weighted_mean(left, as_interval(right))
    return product(torch.matmul, left, right, left.shape[-1])


def product_from_right(left: Any, right: Any) -> Interval:
    return matrix_product(right, left)


def added_product(bias: Any, left: Any, right: Any, *, beta: float = 1, alpha: float = 1) -> Interval:
    if beta != 1 or alpha != 1:
        raise NotImplementedError
    return added(bias, matrix_product(left, right))


def contracted(equation: Any, *operands: Any) -> Interval:
    """`einsum` of two."""
    parts = operands[0] if len(operands) == 1 and not isinstance(operands[0], Tensor) else operands
    if not isinstance(equation, str) or len(parts) != 2 or "->" not in equation or "." in equation:
        raise NotImplementedError
    before, after = equation.replace(" ", "").split("->")
    sizes = dict(zip("".join(before.split(",")), (*parts[0].shape, *parts[1].shape), strict=True))
    terms = math.prod(size for name, size in sizes.items() if name not in after)
    return product(lambda a, b: torch.einsum(equation, a, b), parts[0], parts[1], terms)


def softmax(value: Interval, dim: int | None = None, **_: Any) -> Interval:
    """Each share is least if its own score is at its lowest and all others are at their highest.

    Scores carry their own rounding; the sum and the division add that of as many terms.
    """
    if dim is None:
        raise NotImplementedError
    if _masks_vary.get():
        value = Interval(torch.full_like(value.low, -torch.inf), value.high)
    top = value.high.amax(dim, keepdim=True).nan_to_num(neginf=0.0)
    low, high = torch.exp(value.low - top), torch.exp(value.high - top)
    count = value.low.shape[dim]
    # What all the others add up to; the difference cancels, hence its own margin.
    slack = 4 * count * 2.0**-52
    most = (high.sum(dim, keepdim=True) - high) + slack * high.sum(dim, keepdim=True)
    least = ((low.sum(dim, keepdim=True) - low) - slack * low.sum(dim, keepdim=True)).clamp(min=0)
    shares = Interval(
        torch.where(low > 0, low / (low + most), 0.0), torch.where(high > 0, high / (high + least), 0.0)
    )
    rounding = UNIT * (count + 32)
    return Interval(
        (shares.low * (1 - rounding) - SMALLEST).clamp(min=0),
        (shares.high * (1 + rounding) + SMALLEST).clamp(max=1 + rounding),
        Shares() if dim in (-1, value.dim() - 1) else None,
    )


def log_softmax(value: Interval, dim: int | None = None, **_: Any) -> Interval:
    """The logarithm of `softmax`, from the same extremes."""
    if dim is None:
        raise NotImplementedError
    count = value.low.shape[dim]
    moved = value.low.movedim(dim, -1), value.high.movedim(dim, -1)
    others = ~torch.eye(count, dtype=torch.bool)

    def least(own: Tensor, rest: Tensor) -> Tensor:
        against = torch.logsumexp(rest[..., None, :].masked_fill(~others, -torch.inf), dim=-1)
        return -F.softplus(against - own, threshold=50.0)

    low, high = least(moved[0], moved[1]), least(moved[1], moved[0])
    error = UNIT * (count + 32) * (1 + value.magnitude.amax(dim, keepdim=True))
    result = Interval(low.movedim(-1, dim), high.movedim(-1, dim)).widened(error)
    return Interval(result.low, result.high.clamp(max=0))


def attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Interval:  # fmt: skip
    """softmax(q k' scale + mask) v."""
    if dropout_p > 0:
        raise NotImplementedError
    if enable_gqa:
        key, value = (_repeated_heads(part, query.shape[-3]) for part in (key, value))
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    if factor < 0:
        raise NotImplementedError
    keys = as_interval(key).each(lambda end: end.mT)
    scores = product(torch.matmul, query, keys, query.shape[-1] + SCALING).each(lambda end: end * factor)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    return weighted_mean(softmax(_masked(scores, attn_mask), -1), as_interval(value))


def weighted_mean(weights: Interval, values: Interval) -> Interval:
    """weights values, for weights that add up to one along the last axis."""
    seen = (weights.high > 2 * SMALLEST).any(dim=-2, keepdim=True).mT  # values that some row has weight for
    floor = torch.where(seen, values.low, torch.inf).amin(dim=-2, keepdim=True)
    ceiling = torch.where(seen, values.high, -torch.inf).amax(dim=-2, keepdim=True)
    if bool((weights.high <= 2 * SMALLEST).all(dim=-1).any()):  # all of a row masked: kernels give zeros
        floor, ceiling = floor.clamp(max=0), ceiling.clamp(min=0)
    # Since weights add up to one, only what is away from the centre moves the mean.
    centre = (floor + ceiling) / 2
    away = Interval(values.low - centre, values.high - centre)
    low = weights.high @ away.low.clamp(max=0) + weights.low @ away.low.clamp(min=0)
    high = weights.high @ away.high.clamp(min=0) + weights.low @ away.high.clamp(max=0)
    closer = Interval(centre + low, centre + high)
    # Computed weights add up to one but for rounding, and so does the mean they make.
    largest = torch.where(seen, values.magnitude, 0.0).amax(dim=-2, keepdim=True)
    error = UNIT * (4 * values.shape[-2] + 64) * largest
    return closer.within(Interval(floor, ceiling)).widened(error)


@contextmanager
def varying_masks() -> Iterator[None]:
    """Any softmax may leave out any of its terms, as attention leaves out padding."""
    token = _masks_vary.set(True)
    try:
        yield
    finally:
        _masks_vary.reset(token)


def _masked(scores: Interval, mask: Any) -> Interval:
    if mask is None:
        return scores
    if isinstance(mask, Interval) or mask.dtype != torch.bool:
        return added(scores, mask)
    return scores.each(lambda end: end.masked_fill(~mask, -torch.inf))


def _repeated_heads(part: Any, heads: int) -> Any:
    times = heads // part.shape[-3]
    return as_interval(part).each(lambda end: end.repeat_interleave(times, dim=-3))


def multi_head_attention(
    query: Any, key: Any, value: Any, embed_dim_to_check: int, num_heads: int, in_proj_weight: Any,
    in_proj_bias: Any, bias_k: Any, bias_v: Any, add_zero_attn: bool, dropout_p: float, out_proj_weight: Any,
    out_proj_bias: Any, training: bool = True, key_padding_mask: Any = None, need_weights: bool = True,
    attn_mask: Any = None, use_separate_proj_weight: bool = False, q_proj_weight: Any = None,
    k_proj_weight: Any = None, v_proj_weight: Any = None, static_k: Any = None, static_v: Any = None,
    average_attn_weights: bool = True, is_causal: bool = False,
) -> tuple[Interval, Interval | None]:  # fmt: skip
    """`torch.nn.MultiheadAttention`, sequence first, with or without a batch."""
    if any(part is not None for part in (bias_k, bias_v, static_k, static_v)) or add_zero_attn:
        raise NotImplementedError
    if training and dropout_p > 0:
        raise NotImplementedError
    weights = (q_proj_weight, k_proj_weight, v_proj_weight)
    if not use_separate_proj_weight:
        weights = in_proj_weight.chunk(3)
    biases = (None,) * 3 if in_proj_bias is None else in_proj_bias.chunk(3)
    batched = query.dim() == 3

    def heads(part: Any, weight: Any, bias: Any) -> Interval:
        """(T, N, E) projected, as (N, heads, T, E / heads)."""
        projected = linear(as_interval(part), weight, bias)
        rows = projected if batched else moving(torch.unsqueeze)(projected, 1)
        split: Interval = rows.each(
            lambda end: end.reshape(*end.shape[:2], num_heads, -1).permute(1, 2, 0, 3)
        )
        return split

    parts = [heads(*one) for one in zip((query, key, value), weights, biases, strict=True)]
    mask = _joined_masks(attn_mask, key_padding_mask, len(parts[0]), num_heads)
    mean = attention(parts[0], parts[1], parts[2], mask)
    merged = mean.each(lambda end: end.permute(2, 0, 1, 3).flatten(2))
    result = linear(merged if batched else merged.each(lambda end: end[:, 0]), out_proj_weight, out_proj_bias)
    return result, _any_weights(parts, batched, average_attn_weights) if need_weights else None


def _joined_masks(attn_mask: Any, padding: Any, rows: int, heads: int) -> Any:
    """One mask to add to the scores; boolean ones of this layer say what is not seen."""

    def to_add(mask: Tensor) -> Tensor:
        return torch.zeros(mask.shape).masked_fill(mask, -torch.inf) if mask.dtype == torch.bool else mask

    total = None
    if attn_mask is not None:
        total = to_add(attn_mask)
        total = total.reshape(rows, heads, *total.shape[1:]) if total.ndim == 3 else total
    if padding is not None:
        padded = to_add(padding).reshape(rows, 1, 1, -1)
        total = padded if total is None else total + padded
    return total


def _any_weights(parts: list[Interval], batched: bool, averaged: bool) -> Interval:
    """Attention weights that a caller asks for and seldom reads: anything from 0 to 1."""
    rows, heads, queries, _ = parts[0].shape
    shape = [rows, queries, parts[1].shape[2]] if averaged else [rows, heads, queries, parts[1].shape[2]]
    shape = shape if batched else shape[1:]
    return Interval(torch.zeros(shape, dtype=torch.float64), torch.full(shape, 1 + 1e-5, dtype=torch.float64))


_CONVOLUTIONS = [f"conv{kind}{size}d" for kind in ("", "_transpose") for size in (1, 2, 3)]

RULES: dict[Any, Rule] = {
    "linear": linear, **{name: convolution(name) for name in _CONVOLUTIONS},
    "convolution": general_convolution, "_convolution": general_convolution,
    **dict.fromkeys(("matmul", "bmm", "mm", "__matmul__"), matrix_product),
    "__rmatmul__": product_from_right, "addmm": added_product, "baddbmm": added_product,
    "einsum": contracted, "softmax": softmax, "log_softmax": log_softmax,
    "scaled_dot_product_attention": attention, "multi_head_attention_forward": multi_head_attention,
}  # fmt: skip
