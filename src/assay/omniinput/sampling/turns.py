"""Turns: which kernel moves next. While adapting, those that renew most per evaluation get more turns."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay.omniinput.sampling.kernels.chain import Kernel, evaluations_per_row
from assay.omniinput.sampling.kernels.crossover import Crossover
from assay.storage import storable

Array = NDArray[np.float64]

LEAST_TRIED = 4  # moves of every kernel, before they are compared
EVEN_SHARE = 0.2  # of the evaluations, shared by all kernels alike


@storable("omniinput.Turns")
@dataclass
class Turns:
    """`shares` of the steps per kernel; the kernel farthest behind its share is next.

    A kernel renews the squared distance it moves an input per evaluation. Different kernels suit different
    rungs: each rung has one vote, split by the squares of what kernels renew there. A crossover creates no
    new values and keeps an even share.
    """

    costs: Array
    votes: NDArray[np.bool_]
    shares: Array
    owed: Array
    tried: Array
    renewed: Array  # (kernels, rungs)

    @classmethod
    def among(cls, kernels: Sequence[Kernel], rungs: int) -> "Turns":
        count = len(kernels)
        costs = np.array([float(evaluations_per_row(kernel)) for kernel in kernels])
        votes = np.array([not isinstance(kernel, Crossover) for kernel in kernels])
        nothing = np.zeros(count)
        return cls(costs, votes, np.full(count, 1 / count), nothing, nothing.copy(), np.zeros((count, rungs)))

    def next(self) -> int:
        self.owed += self.shares
        chosen = int(self.owed.argmax())
        self.owed[chosen] -= 1
        return chosen

    def note(self, kernel: int, distances: Array) -> None:
        """Record the squared distance that a move took every row, rung by rung within ensembles."""
        self.tried[kernel] += 1
        self.renewed[kernel] += distances.reshape(-1, self.renewed.shape[1]).mean(axis=0)

    def learned(self, rungs: int) -> "Turns":
        """New shares from the records so far, with empty records for a new ladder."""
        count, voters, shares = len(self.costs), int(self.votes.sum()), self.shares
        if voters > 1 and (self.tried[self.votes] >= LEAST_TRIED).all():
            each = (self.renewed / np.maximum(self.tried * self.costs, 1.0)[:, None])[self.votes] ** 2
            voted = (each / np.maximum(each.sum(axis=0), 1e-300)).mean(axis=1)
            spent = np.full(count, 1 / count)  # of the evaluations
            spent[self.votes] = voters / count * (EVEN_SHARE / voters + (1 - EVEN_SHARE) * voted)
            shares = spent / self.costs / (spent / self.costs).sum()
        nothing = np.zeros(count)
        return Turns(self.costs, self.votes, shares, nothing, nothing.copy(), np.zeros((count, rungs)))
