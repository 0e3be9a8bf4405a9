"""The cells of the labelled test points by group (class, or class and condition), rare ones pooled."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.errors import InputError
from assay.reshaping.array_types import Floats, Integers
from assay.reshaping.histogram import Histogram
from assay.reshaping.solver import Patterns

POINTS_PER_GROUP = 5
"""Neighbouring bins are pooled until a cell holds so many test points for each group, on average ..."""
FEWEST_POINTS = 20
"""... at least so many in all ..."""
FEWEST_INPUTS = 2.0
"""... and so many operational inputs are expected in it, if operation is like the test set."""


@dataclass(frozen=True, eq=False)
class GroupedCells:
    """Test points as pooled cells; `group` is each point's group, `last_bins` the last bin of every cell."""

    patterns: Patterns
    group: Integers
    groups: int
    last_bins: tuple[Integers, ...]
    bins: NDArray[Any]

    @classmethod
    def of(
        cls,
        bins: NDArray[Any],
        group: NDArray[Any],
        groups: int,
        inputs: float,
        per_group: float = POINTS_PER_GROUP,
    ) -> "GroupedCells":
        """`bins` is (points, neurons) as returned by `Bins.cells`; `inputs` are expected in operation."""
        fewest = max(FEWEST_POINTS, per_group * groups, FEWEST_INPUTS * len(bins) / max(inputs, 1))
        last_bins = tuple(_last_bins(column, fewest) for column in bins.T)
        patterns = _patterns(last_bins, bins)
        return cls(patterns, np.asarray(group, np.int64), groups, last_bins, bins)

    @cached_property
    def sizes(self) -> Integers:
        """Points per group."""
        return np.bincount(self.group, minlength=self.groups)

    @cached_property
    def rows(self) -> tuple[Integers, ...]:
        """The points of each group."""
        order = np.argsort(self.group, kind="stable")
        return tuple(np.split(order, np.cumsum(self.sizes)[:-1]))

    @cached_property
    def indicators(self) -> NDArray[np.float32]:
        """(points, cells): 1 where a point lies in a cell. Single precision adds up whole numbers exactly."""
        table = np.zeros((self.patterns.points, self.patterns.cells), np.float32)
        table[np.arange(self.patterns.points)[:, None], self.patterns.rows()] = 1
        return table

    @cached_property
    def portions(self) -> Floats:
        """(cells, groups): P(cell | group) in the test set."""
        counts = [
            np.bincount(codes.astype(np.int64) * self.groups + self.group, minlength=size * self.groups)
            for codes, size in zip(self.patterns.codes, self.patterns.sizes, strict=True)
        ]
        table: Floats = np.concatenate(counts).reshape(-1, self.groups) / np.maximum(self.sizes, 1)
        return table

    def patterns_of(self, bins: NDArray[Any]) -> Patterns:
        """Other points in these cells."""
        return _patterns(self.last_bins, bins)

    def counts(self, histogram: Histogram) -> Integers:
        """The histogram's counts in these cells."""
        if len(histogram.window) != len(self.last_bins):
            raise InputError(
                f"expected counts of {len(self.last_bins)} neurons, got {len(histogram.window)}; "
                "count with the bins of the test set"
            )
        bins = np.arange(histogram.window.shape[1]) + histogram.first
        parts = [
            np.bincount(_cells(last, bins), row, minlength=len(last))
            for last, row in zip(self.last_bins, histogram.window, strict=True)
        ]
        return np.rint(np.concatenate(parts)).astype(np.int64)

    def group_means(self, amounts: Floats) -> Floats:
        """The mean of the amounts in each group; 0 where a group has no point."""
        return np.bincount(self.group, amounts, minlength=self.groups) / np.maximum(self.sizes, 1)

    def noise(self, histogram: Histogram) -> Floats:
        """The variance that privacy noise adds to the portion of each cell."""
        if histogram.privacy is None:
            return np.zeros(self.patterns.cells)
        first, lasts = histogram.bins.first, histogram.bins.lasts(len(self.last_bins))
        pooled = [
            np.bincount(_cells(ends, np.arange(first, last + 1)), minlength=len(ends))
            for ends, last in zip(self.last_bins, lasts, strict=True)
        ]
        deviation = histogram.privacy.deviation(len(self.last_bins))
        return np.asarray(np.concatenate(pooled) * (deviation / histogram.total) ** 2, np.float64)

    def covariance(self, shares: Floats, inputs: float) -> Floats:
        """Of the operational portions minus those expected, where groups have these shares.

        Operation is a sample of so many inputs, and P(cell | group) is known from a sample, too. Both
        covariances are sums over points, so one weighted Gram matrix gives their sum. Every cell holds one
        more, imagined point of each group: a cell that no test point of a group lies in may still occur.
        """
        sizes = np.maximum(self.sizes, 1)
        mixed = self.portions @ shares
        weights = shares / (sizes * inputs) + shares**2 / sizes**2
        own = (self.portions * (shares**2 / sizes)) @ self.portions.T
        found: Floats = self.patterns.gram(weights[self.group]) - np.outer(mixed, mixed) / inputs - own
        found[np.diag_indices_from(found)] += float(weights.sum())
        return found


def _last_bins(bins: NDArray[Any], fewest: float) -> Integers:
    """The last bin of each cell: neighbouring bins together hold at least `fewest` points."""
    values, counts = np.unique(bins, return_counts=True)
    ends, held = [], 0
    for value, count in zip(values, counts, strict=True):
        held += count
        if held >= fewest:
            ends.append(int(value))
            held = 0
    return np.array(ends or [int(values[-1])], np.int64)


def _patterns(last_bins: tuple[Integers, ...], bins: NDArray[Any]) -> Patterns:
    codes = np.stack([_cells(last, column) for last, column in zip(last_bins, bins.T, strict=True)])
    sizes = tuple(len(last) for last in last_bins)
    return Patterns(codes.astype(np.min_scalar_type(max(sizes))), sizes)


def _cells(last_bins: Integers, bins: NDArray[Any]) -> Integers:
    """The cell of each bin; bins beyond all belong to the last cell."""
    return np.minimum(np.searchsorted(last_bins, bins), len(last_bins) - 1)
