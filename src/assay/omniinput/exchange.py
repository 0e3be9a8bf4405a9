"""Replica exchange: neighbours of the ladder swap states, even and odd pairs in turn."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from assay.omniinput.kernels.chain import State
from assay.storage import storable

Array = NDArray[np.float64]


def swapped(
    state: State, betas: Array, ensembles: int, parity: int, generator: torch.Generator
) -> tuple[State, NDArray[np.int64] | None, Array]:
    """The state after one round of swaps, the row each row came from, and the rejection of every pair.

    Accepts with min(1, exp((beta_i - beta_j)(z_i - z_j))) (Hukushima and Nemoto 1996). Rejections are
    expected ones, of all neighbours, averaged over ensembles: they cost nothing. None came from elsewhere if
    nothing was swapped. In numpy, whose calls on arrays this small cost a fraction of torch's.
    """
    outputs = state.outputs.numpy().reshape(ensembles, len(betas))
    log_ratio = (betas[1:] - betas[:-1]) * (outputs[:, 1:] - outputs[:, :-1])
    probability = np.exp(np.minimum(log_ratio, 0.0))
    uniform = torch.rand(probability.shape, dtype=torch.float64, generator=generator).numpy()
    accepted = uniform < probability
    accepted[:, 1 - parity :: 2] = False
    rejected = 1 - probability.mean(axis=0)
    row, rung = accepted.nonzero()
    if not len(row):
        return state, None, rejected
    left = row * len(betas) + rung
    origin = np.arange(outputs.size)
    origin[left], origin[left + 1] = left + 1, left
    return state.rows(torch.from_numpy(origin)), origin, rejected


@storable("omniinput.RoundTrips")
@dataclass
class RoundTrips:
    """Which end of the ladder each walker touched last, and how often it went from one to the other."""

    last: NDArray[np.int64]  # per row: 0 none, 1 the first rung, 2 the last rung
    halves: NDArray[np.int64]  # half trips of the walker now in each row

    @classmethod
    def none(cls, rows: int) -> "RoundTrips":
        return cls(np.zeros(rows, dtype=np.int64), np.zeros(rows, dtype=np.int64))

    def follow(self, origin: NDArray[np.int64]) -> None:
        self.last, self.halves = self.last[origin], self.halves[origin]

    def touch(self, first: NDArray[np.bool_], last: NDArray[np.bool_]) -> None:
        """Rows that stand at the first end, and at the last."""
        for here, mark in ((first, 1), (last, 2)):
            self.halves += here & (self.last == 3 - mark)
            self.last = np.where(here, mark, self.last)

    @property
    def total(self) -> int:
        return int((self.halves // 2).sum())
