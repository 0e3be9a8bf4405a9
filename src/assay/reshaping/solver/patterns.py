"""Patterns: which cell of each neuron every test point falls into, as a matrix that is never built.

A cell is one bin of one neuron. Every point lies in exactly one cell of each neuron, so the constraint matrix
of all programs here is one-hot per neuron. Its products are gathers and histograms: one pass over the points
for a product with a vector, one pass per pair of neurons for the weighted Gram matrix.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.reshaping.array_types import Floats, Integers


@dataclass(frozen=True, eq=False)
class Patterns:
    """`codes[i, k]` is the cell of neuron i that point k falls into, counted from 0 within the neuron."""

    codes: NDArray[Any]
    sizes: tuple[int, ...]

    @property
    def points(self) -> int:
        return int(self.codes.shape[1])

    @property
    def cells(self) -> int:
        return int(self.offsets[-1])

    @cached_property
    def offsets(self) -> Integers:
        """Where the cells of each neuron start among all cells."""
        return np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)

    def spans(self) -> Iterator[slice]:
        """The cells of each neuron, as a slice."""
        for start, stop in zip(self.offsets[:-1], self.offsets[1:], strict=True):
            yield slice(int(start), int(stop))

    def totals(self, weights: Floats | None = None) -> Floats:
        """Sum of the weights in each cell (without weights: how many points); O(points x neurons)."""
        parts = [
            np.bincount(codes, weights, minlength=size)
            for codes, size in zip(self.codes, self.sizes, strict=True)
        ]
        return np.concatenate(parts).astype(np.float64)

    def prices(self, values: Floats) -> Floats:
        """For each point the sum of the values of its cells; O(points x neurons)."""
        prices = np.zeros(self.points)
        for codes, span in zip(self.codes, self.spans(), strict=True):
            prices += values[span][codes]
        return prices

    def gram(self, weights: Floats) -> Floats:
        """Sum over points of weight times the outer product of its 0-1 column; O(points x neurons^2).

        Each block is the joint histogram of two neurons, which `bincount` fills several times faster than a
        general sparse product (0.7 s against 5.2 s for a million points and 20 neurons on one core).
        """
        matrix = np.zeros((self.cells, self.cells))
        spans = list(self.spans())
        for i, (codes, span) in enumerate(zip(self.codes, spans, strict=True)):
            wide = codes.astype(np.int64)
            for j in range(i):
                joint = wide * self.sizes[j] + self.codes[j]
                block = np.bincount(joint, weights, minlength=self.sizes[i] * self.sizes[j])
                matrix[span, spans[j]] = block.reshape(self.sizes[i], self.sizes[j])
                matrix[spans[j], span] = matrix[span, spans[j]].T
            matrix[span, span] = np.diag(np.bincount(codes, weights, minlength=self.sizes[i]))
        return matrix

    def take(self, points: NDArray[Any]) -> "Patterns":
        """The patterns of some points; the cells stay the same."""
        return Patterns(np.ascontiguousarray(self.codes[:, points]), self.sizes)

    def rows(self) -> Integers:
        """(points, neurons): the cell of each point and neuron, counted over all neurons."""
        return (self.codes.astype(np.int64) + self.offsets[:-1, None]).T
