"""A stretch of sites redrawn from weights of neighbouring values, given the sites to either side.

Backward filtering, forward sampling: the weights of all paths from a place to the site after the stretch are
summed once, then values are drawn in order. The proposal does not depend on the old values of the stretch, so
the Hastings correction is exact whatever the weights are. In numpy, whose calls cost less than torch's on the
few rows and values of a step.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.omniinput.sampling.kernels.chain import Info, State, Target, metropolis_hastings
from assay.omniinput.sampling.problem import Problem
from assay.storage import storable

Array = NDArray[np.float64]
Values = NDArray[np.int64]

LEAST_TRIED = 3  # times, before a length is judged
EVEN_SHARE = 0.2  # of the tries, shared by all lengths alike


@storable("omniinput.Lengths")
@dataclass
class Lengths:
    """How often to try each length of a stretch: at first equally often, then by how many sites it renews.

    A length renews its acceptance times itself on a rung; every rung has one vote, split in proportion.
    `accepted` is summed per length and rung.
    """

    choices: Values
    shares: Array
    tried: Array
    accepted: Array
    frozen: bool = False

    @classmethod
    def upto(cls, sites: int, rungs: int) -> "Lengths":
        """From one site to all, half as long again each time."""
        choices = np.unique(
            np.round(np.geomspace(1, sites, 2 + int(np.log(sites) / np.log(1.5)))).astype(int)
        )
        count = len(choices)
        return cls(choices, np.full(count, 1 / count), np.zeros(count), np.zeros((count, rungs)))

    def drawn(self, uniform: float) -> int:
        return min(int(self.shares.cumsum().searchsorted(uniform)), len(self.choices) - 1)

    def note(self, choice: int, probability: Array) -> None:
        if self.frozen:
            return
        self.tried[choice] += 1
        self.accepted[choice] += probability.reshape(-1, self.accepted.shape[1]).mean(axis=0)

    def learned(self, rungs: int, frozen: bool) -> "Lengths":
        """New shares from the acceptances so far, with empty counts for a new ladder; each length keeps a
        part."""
        known = self.tried >= LEAST_TRIED
        shares = self.shares
        if known.all():
            renewed = self.accepted / self.tried[:, None] * self.choices[:, None]
            votes = (renewed / renewed.sum(axis=0)).mean(axis=1)
            shares = (1 - EVEN_SHARE) * votes + EVEN_SHARE / len(votes)
        count = len(self.choices)
        return Lengths(self.choices, shares, np.zeros(count), np.zeros((count, rungs)), frozen)


@dataclass(frozen=True)
class PairWeights:
    """Weights of each value after each other one on each rung, (rungs, values + 1, values).

    Row `values` is for the first site. `chain` is whether rows add up to one; then no sum is needed over what
    follows a stretch that ends at the last site.
    """

    weights: Array
    chain: bool

    @cached_property
    def logs(self) -> Array:
        return np.log(self.weights)

    def step(
        self, state: State, target: Target, problem: Problem, generator: torch.Generator, lengths: Lengths
    ) -> tuple[State, Info]:
        """One evaluation per row; all rows share a stretch."""
        rows, sites = state.sites.shape
        shape = torch.rand(2, dtype=torch.float64, generator=generator).tolist()
        choice = lengths.drawn(shape[0])
        length = int(lengths.choices[choice])
        start = int((sites - length + 1) * shape[1])
        uniform = torch.rand(length, rows, dtype=torch.float64, generator=generator).numpy()
        present = state.sites.numpy()
        redrawn = self._redrawn(present, start, length, uniform)
        before, after = self._log_weights(np.stack([present, redrawn]), start, length)
        proposed = torch.from_numpy(redrawn)
        state, info = metropolis_hastings(
            state, proposed, problem(proposed), torch.from_numpy(before - after), target, generator
        )
        lengths.note(choice, info.probability.numpy())
        return state, info

    def _redrawn(self, sites: Values, start: int, length: int, uniform: Array) -> Values:
        """Values from `start` on, drawn in order, each given the one before and what must follow."""
        rungs, _, values = self.weights.shape
        rung = np.arange(len(sites)) % rungs
        ahead = self._messages(sites, start, length, rung)
        flat, base = self.weights.reshape(-1, values), rung * (values + 1)
        proposed = sites.copy()
        before = np.full(len(sites), values) if start == 0 else sites[:, start - 1]
        for place in range(length):
            total = (flat.take(base + before, axis=0) * ahead[place]).cumsum(axis=1)
            before = np.count_nonzero(total < (uniform[place] * total[:, -1])[:, None], axis=1)
            proposed[:, start + place] = before
        return proposed

    def _messages(self, sites: Values, start: int, length: int, rung: Values) -> list[Array] | Array:
        """For each place and value, the weight of all paths to the site after the stretch."""
        rungs, _, values = self.weights.shape
        rows, end = len(sites), start + length
        if end == sites.shape[1] and self.chain:
            return np.ones((length, 1, 1))
        last = np.ones((rows, values))
        messages = [last if end == sites.shape[1] else self.weights[rung, :-1, sites[:, end]]]
        onward = self.weights[:, :-1].transpose(0, 2, 1)
        for _ in range(length - 1):
            by_rung = messages[-1].reshape(-1, rungs, values).transpose(1, 0, 2)
            after = (by_rung @ onward).transpose(1, 0, 2).reshape(rows, -1)
            messages.append(after / after.max(axis=1, keepdims=True))
        return messages[::-1]

    def _log_weights(self, sites: Values, start: int, length: int) -> Array:
        """ln of the weight of the stretch and the site after it; the rest of the proposal cancels.

        Of several states of all rows at once, (states, rows, sites) to (states, rows).
        """
        rungs, _, values = self.weights.shape
        base = np.arange(sites.shape[1]) % rungs * (values + 1)
        part = sites[:, :, max(start - 1, 0) : start + length + 1]
        if start == 0:
            part = np.concatenate([np.full_like(part[:, :, :1], values), part], axis=2)
        step = (base[:, None] + part[:, :, :-1]) * values + part[:, :, 1:]
        return np.asarray(self.logs.take(step).sum(axis=2))


@dataclass(eq=False)
class Redrawing:
    """A kernel that redraws stretches by learned weights: the parent of `Learned` and `Surrogate`.

    `weights` are those of `PairWeights`. They are None before anything is learned, when one site is redrawn
    uniformly.
    """

    chain: ClassVar[bool]  # as in PairWeights
    kept: ClassVar[tuple[str, ...]]  # names of the data it learns from, saved besides weights and lengths

    gradients: bool = False
    weights: Tensor | None = field(default=None, repr=False)
    lengths: Lengths | None = field(default=None, repr=False)
    _pairs: PairWeights | None = field(default=None, repr=False)

    def step(
        self, state: State, target: Target, problem: Problem, generator: torch.Generator, groups: int = 1
    ) -> tuple[State, Info]:
        if self.weights is None or len(self.weights) * groups != len(state.sites):
            return uniform_site(state, target, problem, generator)
        if self._pairs is None:
            self._pairs = PairWeights(self.weights.numpy(), self.chain)
        if self.lengths is None:
            self.lengths = Lengths.upto(state.sites.shape[1], len(self.weights))
        return self._pairs.step(state, target, problem, generator, self.lengths)

    def _reweighted(self, weights: Tensor, frozen: bool) -> None:
        """Use these weights from now on, for their ladder."""
        self.weights, self._pairs = weights, None
        self.lengths = self.lengths and self.lengths.learned(len(weights), frozen)

    def snapshot(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("weights", "lengths", *self.kept)}

    def restore(self, snapshot: dict[str, Any]) -> None:
        for name, value in snapshot.items():
            setattr(self, name, value)
        self._pairs = None


def uniform_site(
    state: State, target: Target, problem: Problem, generator: torch.Generator
) -> tuple[State, Info]:
    """The move before anything is learned: one site of every row is redrawn uniformly."""
    rows, sites = state.sites.shape
    site = torch.randint(sites, (rows, 1), generator=generator)
    drawn = torch.randint(problem.space.choices, (rows, 1), generator=generator)
    proposed = state.sites.scatter(1, site, drawn)
    return metropolis_hastings(state, proposed, problem(proposed), 0.0, target, generator)


def pair_places(sites: Values, values: int) -> Values:
    """Where each site and the one before it stand in a flat (values + 1, values) table: (rows, sites)."""
    before = np.concatenate([np.full((len(sites), 1), values), sites[:, :-1]], axis=1)
    return np.asarray(before * values + sites)
