"""How an interval passes through normalisations: by the statistics of training, or by those of each row.

A row that is normalised by its own statistics cannot go far, whatever the interval: z = (x - mean) / sd has
||z||_2 <= sqrt(d), and so has every linear layer after it (`Ball`). Inside a narrow interval the mean and the
deviation have little room, which gives closer bounds; both hold.

Rows that vary by less than 1e-4 of their size, where single precision keeps hardly any digits of the
variance, are covered only as far as `eps` of the layer keeps rounding small.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from assay.reshaping.bounds.enclosure import Rule
from assay.reshaping.bounds.interval import UNIT, Ball, Interval, in_double, with_rounding
from assay.reshaping.bounds.operations import squared

DIGITS = 1e-4
"""Spread of a row, as a share of its size, down to which rounding is that of a few operations."""

TINY = 1e-300
"""Keeps 0 / 0 from being NaN."""

HALVINGS = 64
"""Of the range in which the mean lies; below any double after that."""


def by_training(
    value: Interval, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None,
    training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
) -> Interval:  # fmt: skip
    """Batch normalisation in evaluation mode: one factor and one offset per channel."""
    if training or running_mean is None:
        raise NotImplementedError  # it depends on the other rows of the batch
    shape = (1, -1) + (1,) * (value.dim() - 2)
    mean, variance = in_double(running_mean), in_double(running_var)
    factor = (torch.ones_like(mean) if weight is None else in_double(weight)) / torch.sqrt(variance + eps)
    offset = torch.zeros_like(mean) if bias is None else in_double(bias)
    mean, factor, offset = (part.reshape(shape) for part in (mean, factor, offset))
    ends = (value.low - mean) * factor + offset, (value.high - mean) * factor + offset
    # Frameworks fold the statistics in different orders; each step rounds on these magnitudes.
    error = 8 * UNIT * ((value.magnitude + mean.abs()) * factor.abs() + offset.abs())
    return Interval(torch.minimum(*ends), torch.maximum(*ends)).widened(error)


def by_training_in_graph(
    value: Interval, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool,
    momentum: float, eps: float, *_: Any,
) -> Interval:  # fmt: skip
    """The same with the arguments in the order of `torch.batch_norm`."""
    return by_training(value, running_mean, running_var, weight, bias, training, momentum, eps)


def by_row(
    value: Interval, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any
) -> Interval:  # fmt: skip
    """Layer normalisation over the last axes."""
    axes = len(normalized_shape)
    rows = value.each(lambda end: end.flatten(-axes))
    scores = standardised(rows, eps)
    z = scores.each(lambda end: end.reshape(value.shape))
    result = _scaled(z, in_double(weight), in_double(bias))
    if axes > 1:
        return result
    size = value.shape[-1]
    one, zero = torch.ones(size, dtype=torch.float64), torch.zeros(size, dtype=torch.float64)
    centre, scale = zero if bias is None else in_double(bias), one if weight is None else in_double(weight)
    return Interval(result.low, result.high, Ball(centre, scale, _longest(size)))


def by_group(
    value: Interval, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any
) -> Interval:
    """Group normalisation: rows are the channels of a group at all positions."""
    rows = value.each(lambda end: end.reshape(len(end), num_groups, -1))
    z = standardised(rows, eps).each(lambda end: end.reshape(value.shape))
    shape = (1, -1) + (1,) * (value.dim() - 2)
    parts = [None if part is None else in_double(part).reshape(shape) for part in (weight, bias)]
    return _scaled(z, *parts)


def by_channel(
    value: Interval, running_mean: Any = None, running_var: Any = None, weight: Any = None, bias: Any = None,
    use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5,
) -> Interval:  # fmt: skip
    """Instance normalisation: a group per channel, or the statistics of training."""
    if not use_input_stats:
        return by_training(value, running_mean, running_var, weight, bias, False, momentum, eps)
    return by_group(value, value.shape[1], weight, bias, eps)


def by_size(value: Interval, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Interval:
    """RMS normalisation: z = x / sqrt(mean of squares + eps)."""
    axes = len(normalized_shape)
    floor = float(torch.finfo(torch.float32).eps) if eps is None else eps
    rows = value.each(lambda end: end.flatten(-axes))
    squares = squared(rows)
    size = rows.shape[-1]
    least, most = squares.low.mean(-1, keepdim=True), squares.high.mean(-1, keepdim=True)
    z = _quotient(rows, least, most, floor, size).each(lambda end: end.reshape(value.shape))
    result = _scaled(with_rounding(z, size + 32), in_double(weight), None)
    if axes > 1:
        return result
    one = torch.ones(size, dtype=torch.float64)
    scale = one if weight is None else in_double(weight)
    return Interval(result.low, result.high, Ball(torch.zeros_like(one), scale, _longest(size)))


def to_unit_length(value: Interval, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Interval:
    """`F.normalize`: a row over its length."""
    if p != 2.0:
        raise NotImplementedError
    rows = value.each(lambda end: end.movedim(dim, -1))
    squares = squared(rows)
    size = rows.shape[-1]
    least, most = squares.low.sum(-1, keepdim=True), squares.high.sum(-1, keepdim=True)
    # The length is replaced by eps below it, which only shortens a row.
    z = _quotient(rows, least, most + eps**2, TINY, 1)
    return with_rounding(z.each(lambda end: end.movedim(-1, dim)), size + 32)


def standardised(rows: Interval, eps: float) -> Interval:
    """z = (x - mean) / sqrt(variance + eps) along the last axis.

    A value away from the mean by c makes the variance at least c^2 / (d - 1), so that z is at most
    c / sqrt(max(least variance, c^2 / (d - 1)) + eps), which grows with c.
    """
    size = rows.shape[-1]
    if size == 1:
        return Interval(torch.zeros_like(rows.low), torch.zeros_like(rows.high))
    sums = rows.low.sum(-1, keepdim=True), rows.high.sum(-1, keepdim=True)
    away = Interval(
        rows.low - (rows.low + sums[1] - rows.high) / size,
        rows.high - (rows.high + sums[0] - rows.low) / size,
    )
    largest = rows.magnitude.amax(-1, keepdim=True)
    # The mean is rounded by a few units of the row's size, and what it is taken from is off by as much.
    step = 8 * UNIT * largest
    least = (_least_variance(rows).sqrt() * (1 - 2 * size * UNIT) - step).clamp(min=0).square()
    z = _quotient(away, least, _largest_variance(rows), eps, size - 1)
    error = torch.minimum(step / torch.sqrt(least + eps), torch.tensor(8 * UNIT / DIGITS))
    return with_rounding(z, 4 * size + 32).widened(error)


def _quotient(value: Interval, least: Tensor, most: Tensor, eps: float, others: int) -> Interval:
    """c / sqrt(s + eps) for c in the interval and s in [max(least, c^2 / others), most]."""

    def outwards(size: Tensor) -> Tensor:
        return size / torch.sqrt(torch.maximum(least, size.square() / others) + eps)

    def inwards(size: Tensor) -> Tensor:
        return size / torch.sqrt(torch.maximum(most, size.square() / others) + eps)

    above, below = value.high.clamp(min=0), (-value.low).clamp(min=0)
    high = torch.where(value.high > 0, outwards(above), -inwards((-value.high).clamp(min=0)))
    low = torch.where(value.low < 0, -outwards(below), inwards(value.low.clamp(min=0)))
    return Interval(low, high)


def _least_variance(rows: Interval) -> Tensor:
    """The smallest mean of (x - m)^2 over rows in the interval and any m; (..., 1).

    For a given m the best x is the nearest in each interval. What is left is convex in m, and its slope
    changes sign once: halving finds where.
    """

    def gaps(middle: Tensor) -> tuple[Tensor, Tensor]:
        return (middle - rows.high).clamp(min=0), (rows.low - middle).clamp(min=0)

    left, right = rows.low.amin(-1, keepdim=True), rows.high.amax(-1, keepdim=True)
    for _ in range(HALVINGS):
        middle = (left + right) / 2
        above, below = gaps(middle)
        rises = above.sum(-1, keepdim=True) > below.sum(-1, keepdim=True)
        left, right = torch.where(rises, left, middle), torch.where(rises, middle, right)
    above, below = gaps((left + right) / 2)
    rounding = 2.0**-50 * rows.magnitude.amax(-1, keepdim=True)
    return (above + below - rounding).clamp(min=0).square().mean(-1, keepdim=True) * (1 - 1e-9)


def _largest_variance(rows: Interval) -> Tensor:
    """No smaller than the mean of (x - m)^2 for one m and the farthest x in each interval."""
    middle = ((rows.low + rows.high) / 2).mean(-1, keepdim=True)
    return torch.maximum(rows.high - middle, middle - rows.low).square().mean(-1, keepdim=True)


def _longest(size: int) -> float:
    """sqrt(d), and the rounding of variance, mean and quotient."""
    return math.sqrt(size) * (1 + (4 * size + 32) * UNIT + 8 * UNIT / DIGITS)


def _scaled(z: Interval, weight: Tensor | None, bias: Tensor | None) -> Interval:
    factor = torch.ones((), dtype=torch.float64) if weight is None else weight
    offset = torch.zeros((), dtype=torch.float64) if bias is None else bias
    ends = z.low * factor + offset, z.high * factor + offset
    result = Interval(torch.minimum(*ends), torch.maximum(*ends))
    return result.widened(8 * UNIT * (z.magnitude * factor.abs() + offset.abs()))


RULES: dict[Any, Rule] = {
    F.batch_norm: by_training, "batch_norm": by_training_in_graph, "layer_norm": by_row,
    "group_norm": by_group, "instance_norm": by_channel, "rms_norm": by_size, "normalize": to_unit_length,
}  # fmt: skip
