"""Replica exchange: neighbours of the ladder swap states, even and odd pairs in turn."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.omniinput.kernels.chain import State
from assay.storage import storable

Array = NDArray[np.float64]


def swapped(
    state: State, betas: Tensor, ensembles: int, parity: int, generator: torch.Generator
) -> tuple[State, Tensor, Array]:
    """The state after one round of swaps, the row each row came from, and the rejection of every pair.

    Accepts with min(1, exp((beta_i - beta_j)(z_i - z_j))) (Hukushima and Nemoto 1996). Rejections are
    expected ones, of all neighbours, averaged over ensembles: they cost nothing.
    """
    rungs = len(betas)
    outputs = state.outputs.reshape(ensembles, rungs)
    log_ratio = (betas[1:] - betas[:-1]) * (outputs[:, 1:] - outputs[:, :-1])
    uniform = torch.rand(ensembles, rungs - 1, dtype=torch.float64, generator=generator)
    probability = log_ratio.clamp(max=0.0).exp()
    accepted = uniform < probability
    accepted[:, 1 - parity :: 2] = False
    origin = torch.arange(ensembles * rungs).reshape(ensembles, rungs)
    row, rung = accepted.nonzero(as_tuple=True)
    left = origin[row, rung].clone()
    origin[row, rung], origin[row, rung + 1] = left + 1, left
    flat = origin.flatten()
    return state.rows(flat) if len(row) else state, flat, (1 - probability).mean(dim=0).numpy()


@storable("omniinput.RoundTrips")
@dataclass
class RoundTrips:
    """Which end of the ladder each walker touched last, and how often it went from one to the other."""

    last: NDArray[np.int64]  # per row: 0 none, 1 the first rung, 2 the last rung
    halves: NDArray[np.int64]  # half trips of the walker now in each row

    @classmethod
    def none(cls, rows: int) -> "RoundTrips":
        return cls(np.zeros(rows, dtype=np.int64), np.zeros(rows, dtype=np.int64))

    def follow(self, origin: Tensor) -> None:
        index = origin.numpy()
        self.last, self.halves = self.last[index], self.halves[index]

    def touch(self, first: NDArray[np.bool_], last: NDArray[np.bool_]) -> None:
        """Rows that stand at the first end, and at the last."""
        for here, mark in ((first, 1), (last, 2)):
            self.halves += here & (self.last == 3 - mark)
            self.last = np.where(here, mark, self.last)

    @property
    def total(self) -> int:
        return int((self.halves // 2).sum())
