"""Interval: a value between two numbers, in double precision, and the rounding of the network's own."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from assay.reshaping.bounds.enclosure import Enclosure

UNIT = 2.0**-24
"""Half the distance between neighbouring single-precision numbers around one."""

REMEDY = "use Bins.from_data with a margin instead, which counts what falls outside in overflow bins"


@dataclass(frozen=True, eq=False)
class Ball:
    """Rows centre + scale z with ||z||_2 <= radius: what a normalisation leaves, along the last axis."""

    centre: Tensor
    scale: Tensor
    radius: float


@dataclass(frozen=True, eq=False)
class Shares:
    """Rows along the last axis that are never negative and add up to one: what a softmax leaves."""


class Interval(Enclosure):
    """Every value lies between low and high; `rows` says what is known of whole rows besides."""

    remedy = REMEDY

    low: Tensor
    high: Tensor
    rows: Ball | Shares | None

    @staticmethod
    def __new__(cls, low: Tensor, high: Tensor, rows: Ball | Shares | None = None) -> Self:
        shape = low.shape if low.shape == high.shape else (low + high).shape
        interval = Enclosure.__new__(cls, shape)
        interval.low, interval.high, interval.rows = low.expand(shape), high.expand(shape), rows
        return interval

    @property
    def interval(self) -> "Interval":
        return self

    @property
    def magnitude(self) -> Tensor:
        return torch.maximum(self.low.abs(), self.high.abs())

    def become(self, other: "Interval") -> None:
        self.low.copy_(other.low)
        self.high.copy_(other.high)
        self.rows = other.rows

    def widened(self, error: Tensor | float) -> "Interval":
        return Interval(self.low - error, self.high + error)

    def within(self, other: "Interval") -> "Interval":
        """The values that both enclosures allow."""
        return Interval(torch.maximum(self.low, other.low), torch.minimum(self.high, other.high))

    def each(self, function: Callable[[Tensor], Tensor]) -> "Interval":
        """Both ends, changed alike."""
        return Interval(function(self.low), function(self.high))


def as_interval(value: Any) -> Interval:
    """An interval as it is; a number or a tensor as one without width."""
    if isinstance(value, Interval):
        return value
    constant = torch.as_tensor(value).detach().double()
    return Interval(constant, constant)


def in_double(value: Any) -> Any:
    """A weight for exact arithmetic."""
    return None if value is None else value.detach().double()


def with_rounding(value: Interval, operations: float = 16) -> Interval:
    """Widened by what a few single-precision operations may add; exact zeros stay (a ReLU's floor)."""
    share = operations * UNIT
    return Interval(value.low - share * value.low.abs(), value.high + share * value.high.abs())


def rounding_of(terms: int) -> float:
    """Of a sum of so many products in any order, as a share of the sum of their magnitudes."""
    share = terms * UNIT
    return share / (1 - share) if share < 1 else math.inf
