"""Learned proposals: a stretch redrawn from a Markov chain of values, counted while the ladder adapts.

For a black box there is no gradient and no conditional to draw from, but the chains themselves show which
values follow which. A stretch of sites is redrawn from the chain of values seen on its rung, given the sites
to either side. Counts are taken during adaptation only and frozen with the ladder. The paper has no such
move.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.omniinput.kernels.chain import Info, State, Target
from assay.omniinput.kernels.pairs import Lengths, PairWeights, pair_places, uniform_site
from assay.omniinput.problem import Problem

MOST_VALUES = 1024  # pair counts grow with the square of the values; above this, proposals stay uniform
FEWEST_PSEUDO_COUNTS, MOST_PSEUDO_COUNTS = 1.0, 1e6
UNIFORM = 0.02  # share of uniform draws in every step of the chain, so that nothing becomes impossible


@dataclass(eq=False)
class Learned:
    """One evaluation a row, of a stretch that all rows share: a single site up to all, even in the logarithm.

    `steps` is the probability of each value after each other one on each rung, (rungs, values + 1, values);
    the last row is that of the first site. Before anything is learned one site is redrawn uniformly.
    """

    gradients: bool = False
    steps: Tensor | None = field(default=None, repr=False)
    counts: Tensor | None = field(default=None, repr=False)
    lengths: Lengths | None = field(default=None, repr=False)
    _pairs: PairWeights | None = field(default=None, repr=False)

    def step(
        self, state: State, target: Target, problem: Problem, generator: torch.Generator, groups: int = 1
    ) -> tuple[State, Info]:
        if self.steps is None or len(self.steps) * groups != len(state.sites):
            return uniform_site(state, target, problem, generator)
        if self._pairs is None:
            self._pairs = PairWeights(self.steps.numpy(), chain=True)
        if self.lengths is None:
            self.lengths = Lengths.upto(state.sites.shape[1], len(self.steps))
        return self._pairs.step(state, target, problem, generator, self.lengths)

    def watch(self, sites: Tensor, outputs: Tensor, rungs: int, values: int) -> None:
        """Count the pairs in states (any number x rungs, sites), rung by rung.

        A step changes a part of the sites, so only states a sweep apart are news: pairs count for 1 / sites.
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
        self.steps = ((1 - UNIFORM) * steps + UNIFORM / values)[torch.from_numpy(nearest)]
        self.counts, self._pairs = None, None
        self.lengths = self.lengths and self.lengths.learned(len(nearest), frozen)

    def snapshot(self) -> dict[str, Any]:
        return {"steps": self.steps, "counts": self.counts, "lengths": self.lengths}

    def restore(self, snapshot: dict[str, Any]) -> None:
        for name, value in snapshot.items():
            setattr(self, name, value)
        self._pairs = None


def _concentration(counts: Tensor, anywhere: Tensor) -> Tensor:
    """How many pseudo-counts, spread as values are anywhere, every row of a rung's counts gets: (rungs,).

    By moments of a Dirichlet-multinomial: rows that differ from what is seen anywhere only as much as chance
    lets them get many, so that few counts are not taken for structure; rows that differ more get few.
    """
    totals = counts.sum(dim=2, keepdim=True)
    expected = totals * anywhere
    apart = torch.where(expected > 0, (counts - expected) ** 2 / expected.clamp(min=1e-300), 0.0)
    freedom = (counts.shape[2] - 1) * (totals > 0).sum(dim=(1, 2))
    excess = apart.sum(dim=(1, 2)) - freedom
    spread = (counts.shape[2] - 1) * (totals - 1).clamp(min=0.0).sum(dim=(1, 2))
    return (spread / excess.clamp(min=1e-9) - 1).clamp(min=FEWEST_PSEUDO_COUNTS, max=MOST_PSEUDO_COUNTS)
