"""Replica exchange: neighbours of the ladder swap states, even and odd pairs in turn."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from assay.omniinput.sampling.kernels.chain import State
from assay.storage import storable

Array = NDArray[np.float64]
Rows = NDArray[np.int64]


def swapped(
    state: State, betas: Array, ensembles: int, parity: int, generator: torch.Generator
) -> tuple[State, Rows | None]:
    """The state after one round of swaps, and the row each row came from (None if nothing was swapped).

    Accepts with min(1, exp((beta_i - beta_j)(z_i - z_j))) (Hukushima and Nemoto 1996). In numpy, whose calls
    cost a fraction of torch's on arrays this small.
    """
    outputs = state.outputs.numpy().reshape(ensembles, len(betas))
    left, right = slice(parity, -1, 2), slice(parity + 1, None, 2)
    log_ratio = (betas[right] - betas[left]) * (outputs[:, right] - outputs[:, left])
    uniform = torch.rand(log_ratio.shape, dtype=torch.float64, generator=generator).numpy()
    ensemble, pair = (np.exp(np.minimum(log_ratio, 0.0)) > uniform).nonzero()
    if not len(pair):
        return state, None
    here = ensemble * len(betas) + parity + 2 * pair
    origin = np.arange(outputs.size)
    origin[here], origin[here + 1] = here + 1, here
    return state.rows(origin), origin


def swap_rejections(outputs: Array, betas: Array) -> Array:
    """How often a swap of each pair of neighbours would be rejected: outputs (..., rungs) of many states.

    Expected rather than counted, so that pairs that do not swap in a step contribute too.
    """
    log_ratio = np.diff(betas) * np.diff(outputs, axis=-1)
    accepted = np.exp(np.minimum(log_ratio, 0.0)).reshape(-1, len(betas) - 1)
    return np.asarray(1 - accepted.mean(axis=0))


@storable("omniinput.RoundTrips")
@dataclass
class RoundTrips:
    """How often walkers went from the home rung to an end of the ladder and back.

    The home rung is at beta = 0, where states forget where they have been (Syed et al. 2022). A ladder that
    extends to both sides of it has two ends, and trips to each are counted.
    """

    marks: Rows  # per row: 0 not yet at home, 1 at home last, 2 and 3 at that end since
    trips: Rows  # to each end

    @classmethod
    def none(cls, rows: int, ends: int = 1) -> "RoundTrips":
        return cls(np.zeros(rows, dtype=np.int64), np.zeros(ends, dtype=np.int64))

    def follow(self, origin: Rows) -> None:
        self.marks = self.marks[origin]

    def touch(self, home: Rows, ends: Sequence[Rows]) -> None:
        """Mark the rows that are at home, and at each end."""
        for end, there in enumerate(ends):
            self.marks[there] = np.minimum(self.marks[there], 1) * (end + 2)
        back = self.marks[home]
        if (back > 1).any():
            self.trips += [np.count_nonzero(back == end + 2) for end in range(len(ends))]
        self.marks[home] = 1

    @property
    def total(self) -> int:
        """Round trips to the end that was reached less often."""
        return int(self.trips.min())
