"""Counts, means and scatter of every class, from a stream of features."""

import math
from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor

from assay.monitors.parts.class_rows import fitting_classes
from assay.monitors.parts.fourth_moments import FourthMoments
from assay.monitors.parts.gathered import Gathered
from assay.monitors.parts.row_blocks import in_blocks
from assay.trace import Trace

_PANEL = 128
"""Columns of a product computed at a time (see `add_products`)."""

_FIRST_LOOK = 2048
"""Rows (or four per feature, if that is more) after which the precision that sums need is known."""

_EXACT = 2**26
"""Numbers of all covariances of classes up to which fourth moments are summed exactly, by way of these."""

_SINGLE = 16.0
"""Largest amplification (see `amplification`) at which rows are summed in single precision."""


def _zeros(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.float64)


class ClassMoments(Gathered):
    """Counts, means and scatter of N rows in C classes, for Gaussian monitors.

    Rows are taken relative to an anchor near their class mean (the class's mean in the first block that has
    it), so that nothing cancels however far the classes lie from the origin and from each other. Time is
    that of one N x d x d product; memory is d^2 numbers, with `each_class` C d^2. `fourth` also sums fourth
    powers, in bounded memory (`FourthMoments`).

    Sums are in double precision. Products within a block are in single, at half the price, while the rows
    so far show that its rounding cannot matter; this is looked at again whenever there are eight times as
    many. What was added before stays harmless, because scatter only grows.
    """

    unsaved: ClassVar = {"_room": _zeros(2, 0, 0)}

    def __init__(
        self, classes: int, dimensions: int, *, each_class: bool = False, fourth: bool = False
    ) -> None:
        self.counts = _zeros(classes)
        each_class = each_class or (fourth and classes * dimensions**2 <= _EXACT)
        self.each_class = each_class
        self._running = FourthMoments(classes, dimensions) if fourth and not each_class else None
        self._anchors = _zeros(classes, dimensions)
        self._sums = _zeros(classes, dimensions)
        self._products = _zeros(classes if each_class else 1, dimensions, dimensions)  # upper triangles
        self._cubes = _zeros(classes, dimensions)
        self._fourths = _zeros(classes)
        self._single = False
        self._next_look = math.inf if each_class else max(_FIRST_LOOK, 4 * dimensions)
        self._room = _zeros(2, 0, dimensions)

    @classmethod
    def of(
        cls, traces: Iterator[Trace], layer: str, *, each_class: bool = False, fourth: bool = False
    ) -> "ClassMoments":
        """Of the features of one layer, by class (see `fitting_classes`)."""
        parts = ((trace.layer(layer), fitting_classes(trace), trace.logits) for trace in traces)
        moments: ClassMoments | None = None
        for features, classes, logits in in_blocks(parts):
            if moments is None:
                moments = cls(logits.shape[1], features.shape[1], each_class=each_class, fourth=fourth)
            moments.add(features, classes)
        assert moments is not None  # a stream without rows is refused by Monitor.fit
        return moments

    def add(self, features: Tensor, classes: Tensor) -> None:
        counts = torch.bincount(classes, minlength=len(self.counts)).double()
        self._anchor(features, classes, counts)
        rows = self._centred(features, classes)
        self.counts += counts
        self._sums += torch.zeros_like(self._sums, dtype=rows.dtype).index_add_(0, classes, rows)
        if self._running is not None:
            self._running.add(features, classes)
        if self.each_class:
            self._add_each(rows, classes)
        else:
            add_products(self._products[0], rows)
        if self.rows >= self._next_look and features.dtype != torch.float64:
            self._look()

    def merge(self, other: "ClassMoments") -> None:
        """What the other summed about its anchors, moved to these: y becomes y + s, with s the step."""
        new = (self.counts == 0) & (other.counts > 0)
        self._anchors[new] = other._anchors[new]
        step = torch.where(other.counts[:, None] > 0, other._anchors - self._anchors, 0.0)
        if self._running is not None and other._running is not None:
            self._running.merge(other._running)
        if self.each_class:
            self._merge_each(other, step)
        else:
            crossed = other._sums.T @ step
            moved = crossed + crossed.T + step.T @ (step * other.counts[:, None])
            self._products[0] += other._products[0] + moved.triu()
        self._sums += other._sums + step * other.counts[:, None]
        self.counts += other.counts

    def _merge_each(self, other: "ClassMoments", steps: Tensor) -> None:
        """Class by class: sums of ||y + s||^2 (y + s) and ||y + s||^4, written out."""
        for number in other.seen.tolist():
            step, sums, cubes = steps[number], other._sums[number], other._cubes[number]
            n, length = float(other.counts[number]), float(step @ step)
            products = _whole(other._products[number])
            squares, along = float(products.trace()), products @ step
            crossed = torch.outer(sums, step)
            moved = crossed + crossed.T + n * torch.outer(step, step)
            self._products[number] += other._products[number] + moved.triu()
            self._cubes[number] += (
                cubes + (squares + 2 * float(sums @ step) + n * length) * step + 2 * along + length * sums
            )
            self._fourths[number] += (
                float(other._fourths[number])
                + 4 * float(step @ (cubes + along + length * sums))
                + 2 * length * squares
                + n * length**2
            )

    @property
    def rows(self) -> int:
        return int(self.counts.sum())

    @property
    def seen(self) -> Tensor:
        """The classes that have rows, in order."""
        return self.counts.nonzero().squeeze(1)

    @property
    def means(self) -> Tensor:
        """(C, d); zero for a class without rows."""
        return self._anchors + self._offsets

    @property
    def mean(self) -> Tensor:
        return self.counts @ self.means / self.rows

    @property
    def scatter(self) -> Tensor:
        """(d, d): the sum over all rows of (x - mean of its class)(x - mean of its class)'."""
        moved = self._offsets
        return _whole(self._products.sum(dim=0)) - moved.T @ (moved * self.counts[:, None])

    def class_scatter(self, number: int) -> Tensor:
        """(d, d): the same sum for one class; only with `each_class`."""
        moved = self._sums[number] / self.counts[number].clamp(min=1)
        return _whole(self._products[number]) - self.counts[number] * torch.outer(moved, moved)

    @property
    def between(self) -> Tensor:
        """(d, d): what `scatter` lacks to the scatter about the mean of all rows."""
        away = (self.means - self.mean) * self.counts[:, None].sqrt()
        return away.T @ away

    @property
    def spread(self) -> Tensor:
        """(d,): the standard deviation of every feature over all rows."""
        return ((self.scatter + self.between).diagonal() / self.rows).sqrt()

    @property
    def total_fourth(self) -> float:
        """The sum of ||x - mean of its class||^4 over all rows; with `fourth` or `each_class`."""
        return float(self.class_fourth.sum()) if self._running is None else self._running.total()

    @property
    def class_fourth(self) -> Tensor:
        """(C,): the same sum for each class; only with `each_class`.

        The Ledoit-Wolf estimate needs it about the final mean. With y = x - anchor and m the mean of y,
        ||y - m||^4 expands into sums that are known without a second pass:
        ||y||^4 - 4 m'||y||^2 y + 4 m'yy'm + 2 ||m||^2 ||y||^2 - 4 ||m||^2 m'y + ||m||^4.
        """
        moved, counts = self._offsets, self.counts
        length = moved.square().sum(dim=1)
        squares = self._products.diagonal(dim1=1, dim2=2).sum(dim=1)
        return (
            self._fourths
            - 4 * (moved * self._cubes).sum(dim=1)
            + 4 * self._along(moved)
            + 2 * length * squares
            - 3 * counts * length.square()  # the last two terms, as the y of a class sum to counts * m
        )

    def _along(self, moved: Tensor) -> Tensor:
        """m'yy'm, summed over each class, without a second copy of the products."""
        terms = [row @ _whole(products) @ row for row, products in zip(moved, self._products, strict=True)]
        return torch.stack(terms)

    @property
    def _offsets(self) -> Tensor:
        """From each anchor to its class mean."""
        return self._sums / self.counts.clamp(min=1)[:, None]

    def _look(self) -> None:
        """Decide how precise the coming rows have to be; features that never vary round nothing."""
        scatter = self.scatter
        varies = scatter.diagonal() > 0
        self._single = amplification(scatter[varies][:, varies]) <= _SINGLE
        self._next_look = 8 * self.rows

    def _centred(self, features: Tensor, classes: Tensor) -> Tensor:
        """The rows relative to their anchors, in memory that every block uses again."""
        dtype = torch.float32 if self._single else torch.float64
        if len(features) > self._room.shape[1] or self._room.dtype != dtype:
            self._room = torch.empty(2, *features.shape, dtype=dtype)
        rows, anchors = self._room[0, : len(features)], self._room[1, : len(features)]
        torch.index_select(self._anchors.to(dtype), 0, classes, out=anchors)
        return torch.sub(features, anchors, out=rows)

    def _anchor(self, rows: Tensor, classes: Tensor, counts: Tensor) -> None:
        new = (self.counts == 0) & (counts > 0)
        if new.any():
            sums = torch.zeros_like(self._anchors).index_add_(0, classes, rows.double())
            self._anchors[new] = (sums[new] / counts[new, None]).float().double()  # exact in both precisions

    def _add_each(self, rows: Tensor, classes: Tensor) -> None:
        squares = rows.square().sum(dim=1)
        self._fourths.index_add_(0, classes, squares.square())
        self._cubes.index_add_(0, classes, rows * squares[:, None])
        for number in torch.bincount(classes).nonzero().squeeze(1).tolist():
            add_products(self._products[number], rows[classes == number])


def amplification(scatter: Tensor) -> float:
    """sqrt(tr R^-1 / d) of the correlation matrix R: 1 for independent features of any scale.

    The rounding of a product of features i and j is eps of s_i s_j, so that of R is eps everywhere, and
    squared Mahalanobis distances change by a share of about eps tr R^-1 / d. In single precision, averaged
    over dozens of blocks, a limit of 16 keeps them to about 4e-6 of their value. Infinite where R is
    singular.
    """
    spread = scatter.diagonal().sqrt()
    correlation = (scatter / spread / spread[:, None]).float()  # enough to tell 16 from more
    factor, failed = torch.linalg.cholesky_ex(correlation)
    if failed or not torch.isfinite(factor).all():
        return math.inf
    inverse = torch.linalg.solve_triangular(factor, torch.eye(len(factor), dtype=factor.dtype), upper=False)
    return float(inverse.norm() / len(factor) ** 0.5)


def add_products(total: Tensor, rows: Tensor) -> None:
    """Add rows' rows to the upper triangle of `total`, in place; the product is as precise as the rows.

    Panel by panel, for little more than half the price of the whole product. BLAS has a routine for it that
    torch does not offer; scipy does, but with threads of its own, which fight torch's for the cores.
    """
    for start in range(0, len(total), _PANEL):
        panel, others = rows[:, start : start + _PANEL], rows[:, start:]
        corner = total[start : start + _PANEL, start:]
        if rows.dtype == total.dtype:
            corner.addmm_(panel.T, others)
        else:
            corner.add_(panel.T @ others)


def _whole(upper: Tensor) -> Tensor:
    """The symmetric matrices of which these are the upper triangles."""
    return upper.triu() + upper.triu(1).mT
