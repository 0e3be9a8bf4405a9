"""How far rows lie from the mean of their class, to the fourth power, without a covariance per class."""

from copy import copy

import torch
from torch import Tensor

from assay.monitors.parts.class_rows import places_in_class
from assay.monitors.parts.gathered import Gathered

_ROWS = 64
"""Rows of a class that are kept, if there is room for so many."""

_NUMBERS = 2**27
"""Numbers that all kept rows may be."""


class FourthMoments(Gathered):
    """The sum of ||x - mean of its class||^4 over a stream, in C d numbers and the first rows of each class.

    The mean moves with every block, and with it what was summed before: with z = x - mean and s the step from
    the new mean to the old one,
    sum ||z + s||^4 = sum ||z||^4 + 4 s'u + 2 ||s||^2 v + 4 s'Ps + n ||s||^4, where u = sum ||z||^2 z,
    v = sum ||z||^2 and P = sum zz'. All but P is kept. P is that of the first rows of the class, scaled to v:
    an unbiased guess, for a term that is a share of about log(n) / n. Classes without more rows than those
    are exact; others, of the most different shapes and sizes, were off by 5e-5 together.
    """

    def __init__(self, classes: int, dimensions: int) -> None:
        self._limit = max(2, min(_ROWS, _NUMBERS // (classes * dimensions)))
        self._kept = torch.zeros(classes, self._limit, dimensions)
        self._counts = torch.zeros(classes, dtype=torch.long)
        self._means = torch.zeros(classes, dimensions, dtype=torch.float64)
        self._squares = torch.zeros(classes, dtype=torch.float64)  # v
        self._cubes = torch.zeros(classes, dimensions, dtype=torch.float64)  # u
        self._fourths = torch.zeros(classes, dtype=torch.float64)
        self._spreads = torch.zeros(classes, dtype=torch.float64)
        """Of the kept rows: the sum of squared distances from their mean."""

    def add(self, features: Tensor, classes: Tensor) -> None:
        places = self._counts[classes] + places_in_class(classes)
        first = places < self._limit
        self._kept[classes[first], places[first]] = features[first].to(self._kept.dtype)
        few = self._counts < self._limit
        arrived = self._counts + torch.bincount(classes, minlength=len(few))
        self._counts = torch.where(few, arrived.clamp(max=self._limit), self._counts)
        self._begin((few & (self._counts == self._limit)).nonzero().squeeze(1))
        if not first.all():
            self._continue(features[~first].double(), classes[~first])

    def merge(self, other: "FourthMoments") -> None:
        """Sums of classes that both have begun move to the common mean; rows not summed yet are added."""
        begun, begins = self._counts >= self._limit, other._counts >= self._limit
        waiting = [
            (self._own_rows(number), number) for number in (begins & ~begun).nonzero().flatten().tolist()
        ]
        for name in ("_counts", "_means", "_squares", "_cubes", "_fourths", "_spreads", "_kept"):
            getattr(self, name)[begins & ~begun] = getattr(other, name)[begins & ~begun]
        self._join(other, (begins & begun).nonzero().squeeze(1))
        some = (~begins & (other._counts > 0)).nonzero().flatten().tolist()
        waiting += [(other._own_rows(number), number) for number in some]
        for rows, number in waiting:
            if len(rows):
                self.add(rows, torch.full((len(rows),), number))

    def _own_rows(self, number: int) -> Tensor:
        """The rows of a class that has not begun."""
        return self._kept[number, : int(self._counts[number])].clone()

    def _join(self, other: "FourthMoments", numbers: Tensor) -> None:
        """Both about their common mean; what is known of directions stays that of the first rows here."""
        moved = copy(other)
        moved._squares, moved._cubes, moved._fourths = (
            part.clone() for part in (other._squares, other._cubes, other._fourths)
        )
        n, m = (found._counts[numbers].double() for found in (self, other))
        apart = other._means[numbers] - self._means[numbers]
        self._move(numbers, -apart * (m / (n + m))[:, None], n)
        moved._move(numbers, apart * (n / (n + m))[:, None], m)
        self._means[numbers] += apart * (m / (n + m))[:, None]
        for mine, theirs in (
            (self._squares, moved._squares),
            (self._cubes, moved._cubes),
            (self._fourths, moved._fourths),
        ):
            mine[numbers] += theirs[numbers]
        self._counts[numbers] += other._counts[numbers]

    def total(self) -> float:
        """Over all classes."""
        whole = self._counts >= self._limit
        result = float(self._fourths[whole].sum())
        for number in (~whole & (self._counts > 0)).nonzero().squeeze(1).tolist():
            rows = self._kept[number, : int(self._counts[number])].double()
            result += float((rows - rows.mean(dim=0)).square().sum(dim=1).square().sum())
        return result

    def _begin(self, classes: Tensor) -> None:
        """Exact sums of classes of which as many rows as are kept have come; these stay about their mean."""
        for number in classes.tolist():
            rows = self._kept[number].double()
            self._means[number] = rows.mean(dim=0)
            rows = rows - self._means[number]
            squares = rows.square().sum(dim=1)
            self._squares[number] = self._spreads[number] = squares.sum()
            self._cubes[number] = squares @ rows
            self._fourths[number] = squares.square().sum()
            self._kept[number] = rows.to(self._kept.dtype)

    def _continue(self, rows: Tensor, classes: Tensor) -> None:
        """Move what is known of these classes to their new means, and add the rows."""
        numbers, places = torch.unique(classes, return_inverse=True)
        fresh = torch.bincount(places).double()
        n = self._counts[numbers].double()
        means = torch.zeros_like(self._means[numbers]).index_add_(0, places, rows) / fresh[:, None]
        step = -(means - self._means[numbers]) * (fresh / (n + fresh))[:, None]
        self._move(numbers, step, n)
        self._means[numbers] -= step
        centred = rows - self._means[numbers][places]
        squares = centred.square().sum(dim=1)
        self._squares.index_add_(0, classes, squares)
        self._cubes.index_add_(0, classes, centred * squares[:, None])
        self._fourths.index_add_(0, classes, squares.square())
        self._counts[numbers] += fresh.long()

    def _move(self, numbers: Tensor, step: Tensor, n: Tensor) -> None:
        length = step.square().sum(dim=1)
        squares, cubes = self._squares[numbers], self._cubes[numbers]
        products = self._products(numbers, step)
        self._fourths[numbers] += (
            4 * (step * cubes).sum(dim=1)
            + 2 * length * squares
            + 4 * (step * products).sum(dim=1)
            + n * length.square()
        )
        self._cubes[numbers] += step * squares[:, None] + 2 * products + (n * length)[:, None] * step
        self._squares[numbers] += n * length

    def _products(self, numbers: Tensor, step: Tensor) -> Tensor:
        """P s of each class, one row each."""
        kept = self._kept[numbers]
        along = torch.bmm(kept, step.to(kept.dtype)[:, :, None])
        products = torch.bmm(kept.mT, along)[:, :, 0].double()
        spread = self._spreads[numbers]
        scale = torch.where(spread > 0, self._squares[numbers] / spread.clamp(min=1e-300), 0.0)
        return products * scale[:, None]
