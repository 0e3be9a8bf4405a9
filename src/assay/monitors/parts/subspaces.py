"""The few directions in which each class varies most, from a stream, in bounded memory."""

from collections.abc import Iterator

import torch
from torch import Tensor

from assay.monitors.parts.class_rows import fitting_classes, places_in_class
from assay.monitors.parts.gathered import Gathered
from assay.monitors.parts.row_blocks import in_blocks
from assay.trace import Trace

_GROUP = 64
"""Classes whose rows are put together at a time."""

_LENGTH = 1e-7
"""Share of the longest direction below which single precision keeps nothing of another one."""


class ClassSubspaces(Gathered):
    """Means and about `rank` principal directions of every class (Ross et al. 2008).

    Rows wait until there are 2 `rank` of a class. Then they and the 2 `rank` directions known so far are
    replaced by the 2 `rank` directions that hold most of both. So memory is 4 `rank` rows per class, time is
    a few products of N x d x `rank`, and all is exact for classes that vary in so few directions or have so
    few rows.
    """

    def __init__(self, classes: int, dimensions: int, rank: int) -> None:
        self.rank = rank
        self.counts = torch.zeros(classes, dtype=torch.float64)
        self.means = torch.zeros(classes, dimensions, dtype=torch.float64)
        self._lost = torch.zeros(classes, dtype=torch.float64)
        """The part of the sum of squared distances from the mean that no direction known holds."""
        self._known = torch.zeros(classes, 2 * rank, dimensions)
        self._waiting = torch.zeros(classes, 2 * rank, dimensions)
        self._waits = torch.zeros(classes, dtype=torch.long)

    @classmethod
    def of(cls, traces: Iterator[Trace], layer: str, rank: int) -> "ClassSubspaces":
        """Of the features of one layer, by class (see `fitting_classes`)."""
        parts = ((trace.layer(layer), fitting_classes(trace), trace.logits) for trace in traces)
        found: ClassSubspaces | None = None
        for features, classes, logits in in_blocks(parts):
            if found is None:
                found = cls(logits.shape[1], features.shape[1], min(rank, features.shape[1] - 1))
            found.add(features, classes)
        assert found is not None  # a stream without rows is refused by Monitor.fit
        found._take_in(found._waits.nonzero().squeeze(1))
        return found

    def add(self, features: Tensor, classes: Tensor) -> None:
        while len(classes):
            places = self._waits[classes] + places_in_class(classes)
            fits = places < self._waiting.shape[1]
            self._waiting[classes[fits], places[fits]] = features[fits].float()
            self._waits += torch.bincount(classes[fits], minlength=len(self._waits))
            self._take_in((self._waits == self._waiting.shape[1]).nonzero().squeeze(1))
            features, classes = features[~fits], classes[~fits]

    def merge(self, other: "ClassSubspaces") -> None:
        """The directions that hold most of both; exact where a class varies in no more than are kept."""
        for group in torch.split(other.seen, _GROUP):
            self._put_together(group, other._known[group].double(), other.means[group], other.counts[group])
        self._lost += other._lost

    @property
    def seen(self) -> Tensor:
        """The classes that have rows, in order."""
        return self.counts.nonzero().squeeze(1)

    @property
    def mean(self) -> Tensor:
        return self.counts @ self.means / self.counts.sum()

    def directions(self, classes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(classes, rank, d) of unit length, (classes, rank) variances along them, the largest first, and
        (classes,) variances in all other directions together.

        A class that varies in fewer directions has variances of zero, and directions of zeros for them. The
        variance beside them is what was left out, not a difference of large numbers.
        """
        axes, variances, beside = [], [], []
        for group in torch.split(classes, _GROUP):
            rows = self._known[group].double()
            squares, turned = torch.linalg.eigh(rows @ rows.mT)
            squares = squares.flip(-1).clamp(min=0)
            kept, lengths = turned.flip(-1)[..., : self.rank], squares[:, : self.rank].sqrt()
            real = lengths > _LENGTH * lengths[:, :1]
            axes.append((kept.mT @ rows) / torch.where(real, lengths, torch.inf)[:, :, None])
            counts = self.counts[group]
            variances.append(torch.where(real, lengths.square(), 0.0) / counts[:, None])
            beside.append((self._lost[group] + squares[:, self.rank :].sum(dim=1)) / counts)
        return torch.cat(axes), torch.cat(variances), torch.cat(beside)

    def _take_in(self, classes: Tensor) -> None:
        for group in torch.split(classes, _GROUP):
            self._take_in_group(group)
        self._waits[classes] = 0

    def _take_in_group(self, group: Tensor) -> None:
        """Put the waiting rows of these classes together with what is known of them."""
        waits = self._waits[group].double()
        here = torch.arange(self._waiting.shape[1]) < waits[:, None]
        rows = self._waiting[group].double() * here[:, :, None]
        means = rows.sum(dim=1) / waits[:, None]
        self._put_together(group, (rows - means[:, None]) * here[:, :, None], means, waits)

    def _put_together(self, group: Tensor, rows: Tensor, means: Tensor, counts: Tensor) -> None:
        """Of these classes, what is known and further rows (classes, rows, d) about means of their own."""
        n = self.counts[group]
        apart, both = means - self.means[group], n + counts
        # What two means add to the scatter is one more row.
        between = apart * (n * counts / both).sqrt()[:, None]
        stack = torch.cat([self._known[group].double(), rows, between[:, None]], dim=1)
        squares, turned = torch.linalg.eigh(stack @ stack.mT)
        room = self._known.shape[1]
        self._known[group] = (turned[..., -room:].mT @ stack).float()
        self._lost[group] += squares[:, :-room].clamp(min=0).sum(dim=1)
        self.means[group] += apart * (counts / both)[:, None]
        self.counts[group] = both
