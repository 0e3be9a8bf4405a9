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

Array = NDArray[np.float64]
Values = NDArray[np.int64]

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
    _logs: Array | None = field(default=None, repr=False)

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
        shape = torch.rand(2, dtype=torch.float64, generator=generator).tolist()
        length = int((sites + 1) ** shape[0])
        start = int((sites - length + 1) * shape[1])
        uniform = torch.rand(length, rows, dtype=torch.float64, generator=generator).numpy()
        present = state.sites.numpy()
        redrawn = self._redrawn(present, start, length, uniform)
        before, after = self._log_weights(np.stack([present, redrawn]), start, length)
        proposed, log_hastings = torch.from_numpy(redrawn), torch.from_numpy(before - after)
        return metropolis_hastings(state, proposed, problem(proposed), log_hastings, target, generator)

    def _redrawn(self, sites: Values, start: int, length: int, uniform: Array) -> Values:
        """Values from `start` on drawn in order, each given the one before and what has to follow.

        In numpy, like all of this: a step has a few rows of a few values, and numpy's calls cost less.
        """
        assert self.steps is not None
        steps = self.steps.numpy()
        rungs, values = len(steps), steps.shape[2]
        rung = np.arange(len(sites)) % rungs
        ahead = self._messages(steps, sites, start, length, rung)
        flat, base = steps.reshape(-1, values), rung * (values + 1)
        proposed = sites.copy()
        before = np.full(len(sites), values) if start == 0 else sites[:, start - 1]
        for place in range(length):
            total = (flat.take(base + before, axis=0) * ahead[place]).cumsum(axis=1)
            before = np.count_nonzero(total < (uniform[place] * total[:, -1])[:, None], axis=1)
            proposed[:, start + place] = before
        return proposed

    def _messages(
        self, steps: Array, sites: Values, start: int, length: int, rung: Values
    ) -> list[Array] | Array:
        """For each place and value, the probability that the chain goes on to the site after the stretch."""
        rows, end = len(sites), start + length
        if end == sites.shape[1]:  # the chain ends anywhere
            return np.ones((length, 1, 1))
        messages = [steps[rung, :-1, sites[:, end]]]
        onward = steps[:, :-1].transpose(0, 2, 1)
        for _ in range(length - 1):
            by_rung = messages[-1].reshape(-1, len(steps), steps.shape[2]).transpose(1, 0, 2)
            after = (by_rung @ onward).transpose(1, 0, 2).reshape(rows, -1)
            messages.append(after / after.max(axis=1, keepdims=True))
        return messages[::-1]

    def _log_weights(self, sites: Values, start: int, length: int) -> Array:
        """ln of the chain's probability of the stretch and the site after it; the rest of q cancels.

        Of several states of all rows at once, (states, rows, sites) to (states, rows).
        """
        assert self.steps is not None
        if self._logs is None:
            self._logs = np.log(self.steps.numpy())
        rungs, _, values = self._logs.shape
        base = np.arange(sites.shape[1]) % rungs * (values + 1)
        part = sites[:, :, max(start - 1, 0) : start + length + 1]
        if start == 0:
            part = np.concatenate([np.full_like(part[:, :, :1], values), part], axis=2)
        step = (base[:, None] + part[:, :, :-1]) * values + part[:, :, 1:]
        return np.asarray(self._logs.take(step).sum(axis=2))

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
        self.counts, self._logs = None, None

    def snapshot(self) -> dict[str, Tensor | None]:
        return {"steps": self.steps, "counts": self.counts}

    def restore(self, snapshot: dict[str, Tensor | None]) -> None:
        self.steps, self.counts, self._logs = snapshot["steps"], snapshot["counts"], None


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
