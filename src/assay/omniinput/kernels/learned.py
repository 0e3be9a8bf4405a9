"""Learned proposals: a stretch redrawn from a Markov chain of values, counted while the ladder adapts.

For a black box there is no gradient and no conditional to draw from, but the chains themselves show which
values follow which. A stretch of sites is redrawn from the chain of values seen on its rung, given the sites
to either side (forward filtering, backward sampling turned round); since the proposal does not involve what
stood there, the Hastings correction is exact whatever the counts are. They are taken during adaptation only
and frozen with the ladder. The paper has no such move.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.omniinput.kernels.chain import Info, State, Target, metropolis_hastings
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

    def step(
        self, state: State, target: Target, problem: Problem, generator: torch.Generator, groups: int = 1
    ) -> tuple[State, Info]:
        rows, sites = state.sites.shape
        values = problem.space.values
        if self.steps is None or len(self.steps) * groups != rows:
            site = torch.randint(sites, (rows, 1), generator=generator)
            drawn = torch.randint(values, (rows, 1), generator=generator)
            proposed = state.sites.scatter(1, site, drawn)
            return metropolis_hastings(state, proposed, problem(proposed), 0.0, target, generator)
        length = int((sites + 1) ** float(torch.rand((), generator=generator)))
        start = int(torch.randint(sites - length + 1, (), generator=generator))
        proposed = self._redrawn(self.steps, state.sites, start, length, generator)
        log_hastings = self._log_weight(state.sites, start, length) - self._log_weight(
            proposed, start, length
        )
        return metropolis_hastings(state, proposed, problem(proposed), log_hastings, target, generator)

    def _redrawn(
        self, steps: Tensor, sites: Tensor, start: int, length: int, generator: torch.Generator
    ) -> Tensor:
        """Values from `start` on drawn in order, each given the one before and what has to follow."""
        rung = torch.arange(len(sites)) % len(steps)
        ahead = self._messages(steps, sites, start, length, rung)
        proposed = sites.clone()
        before = torch.full_like(rung, steps.shape[2]) if start == 0 else sites[:, start - 1]
        for place in range(length):
            choice = steps[rung, before] * ahead[place]
            before = torch.multinomial(choice, 1, generator=generator)[:, 0]
            proposed[:, start + place] = before
        return proposed

    def _messages(self, steps: Tensor, sites: Tensor, start: int, length: int, rung: Tensor) -> list[Tensor]:
        """For each place and value, the probability that the chain goes on to the site after the stretch."""
        rows, end = len(sites), start + length
        last = torch.ones(rows, steps.shape[2], dtype=torch.float64)
        if end < sites.shape[1]:
            last = steps[rung, :-1, sites[:, end]]
        messages = [last]
        onward = steps[:, :-1].transpose(1, 2)
        for _ in range(length - 1):
            by_rung = messages[-1].reshape(-1, len(steps), steps.shape[2]).transpose(0, 1)
            after = (by_rung @ onward).transpose(0, 1).reshape(rows, -1)
            messages.append(after / after.amax(dim=1, keepdim=True))
        return messages[::-1]

    def _log_weight(self, sites: Tensor, start: int, length: int) -> Tensor:
        """ln of the chain's probability of the stretch and the site after it; the rest of q cancels."""
        assert self.steps is not None
        rung = torch.arange(len(sites)) % len(self.steps)
        framed = torch.nn.functional.pad(sites, (1, 0), value=self.steps.shape[2])
        part = framed[:, start : start + length + 2]
        return self.steps[rung[:, None], part[:, :-1], part[:, 1:]].log().sum(dim=1)

    def watch(self, sites: Tensor, rungs: int, values: int) -> None:
        """Count the pairs in states (any number x rungs, sites), rung by rung.

        A step changes a part of the sites, so only states a sweep apart are news: pairs count for 1 / sites.
        """
        if values > MOST_VALUES or sites.shape[1] < 2:
            return
        if self.counts is None:
            self.counts = torch.zeros(rungs, values + 1, values, dtype=torch.float64)
        rung = torch.arange(len(sites)) % rungs
        framed = torch.nn.functional.pad(sites, (1, 0), value=values)
        place = (rung[:, None] * (values + 1) + framed[:, :-1]) * values + sites
        seen = torch.bincount(place.flatten(), minlength=self.counts.numel())
        self.counts += seen.reshape(self.counts.shape) / sites.shape[1]

    def learn(self, nearest: NDArray[np.int64]) -> None:
        """Tables for a new ladder, each rung from the counts of the old rung nearest to it."""
        if self.counts is None:
            return
        anywhere = self.counts.sum(dim=1, keepdim=True) + 1
        anywhere = anywhere / anywhere.sum(dim=2, keepdim=True)
        smoothed = self.counts + _concentration(self.counts, anywhere)[:, None, None] * anywhere
        steps = smoothed / smoothed.sum(dim=2, keepdim=True)
        values = steps.shape[2]
        self.steps = ((1 - UNIFORM) * steps + UNIFORM / values)[torch.from_numpy(nearest)]
        self.counts = None

    def snapshot(self) -> dict[str, Tensor | None]:
        return {"steps": self.steps, "counts": self.counts}

    def restore(self, snapshot: dict[str, Tensor | None]) -> None:
        self.steps, self.counts = snapshot["steps"], snapshot["counts"]


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
