"""Learned single-site proposals: what neighbours a value likes, counted while the ladder adapts.

For a black box there is no gradient and no conditional to draw from, but the chains themselves show which
values stand beside which. A site is redrawn from counts of (left, value) and (value, right) pairs seen on its
rung; since they do not involve the site's present value, the Hastings correction is exact whatever the counts
are. Counts are taken during adaptation only and frozen with the ladder. The paper has no such move.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.omniinput.kernels.chain import Info, State, Target, metropolis_hastings
from assay.omniinput.problem import Problem

MOST_VALUES = 1024  # pair counts grow with the square of the values; above this, proposals stay uniform
UNIFORM = 0.1  # share of proposals drawn uniformly, so that nothing becomes impossible


@dataclass(eq=False)
class Learned:
    """One evaluation a row.

    `pairs` is ln of the share of each pair of neighbouring values on each rung, (rungs, values, values), and
    `singles` that of each value, (rungs, values). Before anything is learned, proposals are uniform.
    """

    gradients: bool = False
    pairs: Tensor | None = field(default=None, repr=False)
    singles: Tensor | None = field(default=None, repr=False)
    counts: Tensor | None = field(default=None, repr=False)

    def step(
        self, state: State, target: Target, problem: Problem, generator: torch.Generator, groups: int = 1
    ) -> tuple[State, Info]:
        rows, sites = state.sites.shape
        site = torch.randint(sites, (rows, 1), generator=generator)
        choice = self._choice(state.sites, site, groups, problem.space.values)
        drawn = torch.multinomial(choice, 1, generator=generator)
        proposed = state.sites.scatter(1, site, drawn)
        present = state.sites.gather(1, site)
        log_hastings = (choice.gather(1, present).log() - choice.gather(1, drawn).log())[:, 0]
        return metropolis_hastings(state, proposed, problem(proposed), log_hastings, target, generator)

    def _choice(self, sites: Tensor, site: Tensor, groups: int, values: int) -> Tensor:
        """The distribution (rows, values) of one site per row given its neighbours l and r.

        In a chain of pairs it is P(l, v) P(v, r) / P(v); at either end the missing factors drop out.
        """
        rows, length = sites.shape
        if self.pairs is None or self.singles is None or len(self.pairs) * groups != rows:
            return torch.full((rows, values), 1 / values, dtype=torch.float64)
        rung = torch.arange(rows) % len(self.pairs)
        framed = torch.nn.functional.pad(sites, (1, 1))
        left, right = framed.gather(1, torch.cat([site, site + 2], dim=1)).T
        has_left, has_right = site > 0, site < length - 1
        logs = self.pairs[rung, left] * has_left + self.pairs[rung, :, right] * has_right
        logs = logs - self.singles[rung] * (has_left & has_right)
        return (1 - UNIFORM) * torch.softmax(logs, dim=1) + UNIFORM / values

    def watch(self, sites: Tensor, rungs: int, values: int) -> None:
        """Count the pairs in states (any number x rungs, sites), rung by rung.

        A step changes about one site, so only states a sweep apart are news: pairs count for 1 / sites.
        """
        if values > MOST_VALUES or sites.shape[1] < 2:
            return
        if self.counts is None:
            self.counts = torch.zeros(rungs, values, values, dtype=torch.float64)
        rung = torch.arange(len(sites)) % rungs
        place = (rung[:, None] * values + sites[:, :-1]) * values + sites[:, 1:]
        seen = torch.bincount(place.flatten(), minlength=rungs * values**2)
        self.counts += seen.reshape(self.counts.shape) / sites.shape[1]

    def learn(self, nearest: NDArray[np.int64]) -> None:
        """Tables for a new ladder, each rung from the counts of the old rung nearest to it.

        One pseudo-count per pair, spread as if neighbours were independent, keeps what was not seen possible
        and few counts from being taken for structure.
        """
        if self.counts is None:
            return
        values = self.counts.shape[1]
        total = self.counts.sum(dim=(1, 2), keepdim=True) + values
        first = (self.counts.sum(dim=2, keepdim=True) + 1) / total
        second = (self.counts.sum(dim=1, keepdim=True) + 1) / total
        shares = (self.counts + values**2 * first * second) / (total + values**2 - values)
        index = torch.from_numpy(nearest)
        self.pairs = shares.log()[index]
        self.singles = ((first[:, :, 0] + second[:, 0]) / 2).log()[index]
        self.counts = None

    def snapshot(self) -> dict[str, Tensor | None]:
        return {"pairs": self.pairs, "singles": self.singles, "counts": self.counts}

    def restore(self, snapshot: dict[str, Tensor | None]) -> None:
        self.pairs, self.singles = snapshot["pairs"], snapshot["singles"]
        self.counts = snapshot["counts"]
