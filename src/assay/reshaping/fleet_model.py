"""Operation as a mixture of groups of the home set, class x condition, for many devices at once.

A device sees a few hundred inputs and is fitted with dozens of groups, so no formula says how far its
estimate is off, least of all under a condition that nobody collected. Pseudo-devices say it: drawn at home
under one condition, estimated by a model that never saw it.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from assay.reshaping.array_types import Floats, Integers
from assay.reshaping.grouped_cells import GroupedCells
from assay.reshaping.histogram import Histogram
from assay.reshaping.mixture import whitening
from assay.reshaping.simplex import shares_fit


@dataclass(frozen=True, eq=False)
class HomeSet:
    """The labelled points at home: their bins, classes, conditions, and what each adds to an indicator."""

    bins: NDArray[Any]
    labels: Integers
    conditions: Integers
    amounts: Floats

    def take(self, rows: NDArray[Any]) -> "HomeSet":
        return HomeSet(self.bins[rows], self.labels[rows], self.conditions[rows], self.amounts[rows])

    def fold(self) -> NDArray[np.bool_]:
        """Every second point of each condition. The same inputs under several conditions, listed in the same
        order, fall into the same half."""
        order = np.argsort(self.conditions, kind="stable")
        starts = np.searchsorted(self.conditions[order], self.conditions[order])
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order)) - starts
        return np.asarray(place % 2 == 0)


class DeviceFit(NamedTuple):
    """The indicator on one device, and how far its counts are from every mixture of groups."""

    value: float
    misfit: float


@dataclass(frozen=True, eq=False)
class FleetModel:
    """What all devices share: cells, P(cell | group) in the units of their noise, and the groups' amounts."""

    cells: GroupedCells
    root: Floats
    design: Floats
    variances: Floats
    amounts: Floats

    @classmethod
    def of(cls, home: HomeSet, like: Histogram) -> "FleetModel":
        """For devices that count as `like` does: as many inputs, and as much privacy noise."""
        pairs, group = np.unique(np.stack([home.conditions, home.labels]), axis=1, return_inverse=True)
        # Pseudo-devices calibrate what is fitted, so that cells need not be full for every group.
        cells = GroupedCells.of(home.bins, group.reshape(-1), pairs.shape[1], like.total, per_group=0)
        covariance = cells.covariance(cells.sizes / cells.sizes.sum(), like.total)
        covariance[np.diag_indices_from(covariance)] += cells.noise(like)
        root = whitening(covariance)
        amounts = np.stack([cells.group_means(column) for column in home.amounts.T], axis=1)
        return cls(cells, root, root @ cells.portions, np.diagonal(covariance).copy(), amounts)

    def fitted(self, histogram: Histogram) -> DeviceFit:
        portions = self.cells.counts(histogram) / max(histogram.total, 1)
        shares, _ = shares_fit(self.design, self.root @ portions)
        top, bottom = shares @ self.amounts
        apart = np.abs(portions - self.cells.portions @ shares) / np.sqrt(self.variances)
        return DeviceFit(float(top / bottom) if bottom > 0 else float("nan"), float(apart.sum()))


class PseudoDevice(NamedTuple):
    """A device drawn at home: what it counted, and its true indicator."""

    histogram: Histogram
    truth: float


def pseudo_device(home: HomeSet, like: Histogram, rng: np.random.Generator) -> PseudoDevice:
    """As many inputs as `like`, with class frequencies drawn uniformly from all there are."""
    classes = np.unique(home.labels)
    numbers = rng.multinomial(like.total, rng.dirichlet(np.ones(len(classes))))
    rows = np.concatenate(
        [
            rng.choice(np.flatnonzero(home.labels == label), number)
            for label, number in zip(classes, numbers, strict=True)
        ]
    )
    counted = Histogram.of_cells(torch.from_numpy(home.bins[rows]), like.bins).with_noise_of(like, rng)
    top, bottom = home.amounts[rows].sum(axis=0)
    return PseudoDevice(counted, float(top / bottom) if bottom else float("nan"))
