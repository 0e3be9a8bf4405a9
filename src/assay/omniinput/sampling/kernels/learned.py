"""Learned proposals: a stretch redrawn from a Markov chain of values, counted while the ladder adapts.

For a black box there is no gradient and no conditional to draw from, but the chains themselves show which
values follow which. A stretch of sites is redrawn from the chain of values seen on its rung, given the sites
to either side. Counts are taken during adaptation only and frozen with the ladder. The paper has no such
move.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.omniinput.sampling.kernels.pairs import Redrawing, pair_places

MOST_VALUES = 1024  # pair counts grow with the square of the values; above this, proposals stay uniform
FEWEST_PSEUDO_COUNTS, MOST_PSEUDO_COUNTS = 1.0, 1e6
UNIFORM = 0.02  # share of uniform draws in every step of the chain, so that nothing becomes impossible


@dataclass(eq=False)
class Learned(Redrawing):
    """One evaluation per row; all rows share a stretch, from a single site to all, of log-uniform length.

    Weights are the probability of each value after each other one on each rung, (rungs, values + 1, values);
    the last row is that of the first site.
    """

    chain: ClassVar[bool] = True
    kept: ClassVar[tuple[str, ...]] = ("counts",)

    counts: Tensor | None = field(default=None, repr=False)

    def watch(self, sites: Tensor, outputs: Tensor, rungs: int, values: int) -> None:
        """Count the pairs in states (any number x rungs, sites), rung by rung.

        A step changes only some sites, so that only states a sweep apart are new: a pair counts 1 / sites.
        """
        if values > MOST_VALUES or sites.shape[1] < 2:
            return
        if self.counts is None:
            self.counts = torch.zeros(rungs, values + 1, values, dtype=torch.float64)
        rung = np.arange(len(sites)) % rungs
        place = rung[:, None] * (values + 1) * values + pair_places(sites.numpy(), values)
        seen = torch.from_numpy(np.bincount(place.ravel(), minlength=self.counts.numel()))
        self.counts += seen.reshape(self.counts.shape) / sites.shape[1]

    def learn(
        self, nearest: NDArray[np.int64], betas: NDArray[np.float64], values: int, frozen: bool
    ) -> None:
        """Tables for a new ladder, each rung from the counts of the old rung nearest to it."""
        if self.counts is None:
            return
        anywhere = self.counts.sum(dim=1, keepdim=True) + 1
        anywhere = anywhere / anywhere.sum(dim=2, keepdim=True)
        smoothed = self.counts + _concentration(self.counts, anywhere)[:, None, None] * anywhere
        steps = smoothed / smoothed.sum(dim=2, keepdim=True)
        self._reweighted(((1 - UNIFORM) * steps + UNIFORM / values)[torch.from_numpy(nearest)], frozen)
        self.counts = None


def _concentration(counts: Tensor, anywhere: Tensor) -> Tensor:
    """The number of pseudo-counts, distributed like the values overall, for every row of a rung: (rungs,).

    By moments of a Dirichlet-multinomial: rows that differ from the overall distribution no more than by
    chance get many, so that few counts are not mistaken for structure; rows that differ more get few.
    """
    totals = counts.sum(dim=2, keepdim=True)
    expected = totals * anywhere
    apart = torch.where(expected > 0, (counts - expected) ** 2 / expected.clamp(min=1e-300), 0.0)
    freedom = (counts.shape[2] - 1) * (totals > 0).sum(dim=(1, 2))
    excess = apart.sum(dim=(1, 2)) - freedom
    spread = (counts.shape[2] - 1) * (totals - 1).clamp(min=0.0).sum(dim=(1, 2))
    return (spread / excess.clamp(min=1e-9) - 1).clamp(min=FEWEST_PSEUDO_COUNTS, max=MOST_PSEUDO_COUNTS)
