"""Representatives: up to `keep` inputs per bin, sampled from a stream of any length."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.omniinput.sampling.time_blocks import MOST_BLOCKS
from assay.storage import storable

Array = NDArray[np.float64]
Index = NDArray[np.int64]


@storable("omniinput.Representatives")
@dataclass
class Representatives:
    """Weighted sampling without replacement by exponential races (Efraimidis and Spirakis 2006).

    Each candidate gets the key log weight + Gumbel noise; the largest `keep` keys of a bin stay. `discarded`
    is the largest key that a bin has rejected, from which `standing_weights` gives the kept inputs the weight
    of all that were offered. An offer costs as much as sorting it. `moments` says with which offer each of
    them came.
    """

    bins: int
    keep: int
    sites: Tensor
    outputs: Array
    log_weights: Array
    keys: Array
    index: Index
    discarded: Array
    moments: Index
    offers: int = 0

    @classmethod
    def empty(cls, bins: int, keep: int, sites: int) -> "Representatives":
        none = np.empty(0)
        return cls(
            bins,
            keep,
            torch.empty(0, sites, dtype=torch.int64),
            none,
            none,
            none,
            np.empty(0, dtype=np.int64),
            np.full(bins, -np.inf),
            np.empty(0, dtype=np.int64),
        )

    def state(self) -> dict[str, Any]:
        """For storage: columns as tensors, since empty numpy arrays cannot be written."""
        return {
            name: torch.tensor(value) if isinstance(value, np.ndarray) else value
            for name, value in vars(self).items()
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> "Representatives":
        columns = {"outputs", "log_weights", "keys", "index", "discarded", "moments"}
        return cls(**{name: value.numpy() if name in columns else value for name, value in state.items()})

    def admits(self, index: Index, keys: Array) -> NDArray[np.bool_]:
        """Which candidates could stay; a cheap filter before their inputs are copied."""
        inside = (index >= 0) & (index < self.bins)
        return np.asarray(inside & (keys > self.discarded[index.clip(0, self.bins - 1)]))

    def offer(self, sites: Tensor, outputs: Array, log_weights: Array, keys: Array, index: Index) -> None:
        """Candidates with keys (see `keys_of`) and bins; those outside the bins are ignored."""
        self.offers += 1
        admitted = self.admits(index, keys)
        if not admitted.any():
            return
        all_sites = torch.cat([self.sites, sites[torch.from_numpy(admitted)]])
        columns = [
            np.concatenate([mine, theirs[admitted]])
            for mine, theirs in (
                (self.outputs, outputs),
                (self.log_weights, log_weights),
                (self.keys, keys),
                (self.index, index),
                (self.moments, np.full(len(index), self.offers - 1)),
            )
        ]
        stays, goes = self._parted(columns[2], columns[3])
        np.maximum.at(self.discarded, columns[3][goes], columns[2][goes])
        self.sites = all_sites[torch.from_numpy(stays)]
        self.outputs, self.log_weights, self.keys, self.index, self.moments = (
            column[stays] for column in columns
        )

    def winners(
        self, log_weights: Array, counts: Array, generator: np.random.Generator
    ) -> tuple[Index, Index, Array]:
        """Which of many equal candidates stay, without a key for each: their rows, bins and keys.

        counts (rows, bins) are numbers of candidates of one weight. The keys of n equal candidates in
        descending order are those of an exponential race with n, n - 1, ... runners, so that only the first
        few of those that could stay are drawn. What loses counts as rejected.
        """
        row, index = np.nonzero(counts)
        runners = counts[row, index]
        arrivals = generator.exponential(size=len(row)) / runners
        first = log_weights[row] - np.log(arrivals)
        could = np.flatnonzero(first > self.discarded[index])
        row, index, runners = row[could], index[could], runners[could]
        later = generator.exponential(size=(len(row), self.keep))
        left = runners[:, None] - np.arange(1, self.keep + 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            gaps = np.where(left > 0, later / left, np.inf)
        times = np.concatenate([arrivals[could, None], gaps], axis=1).cumsum(axis=1)
        keys = log_weights[row][:, None] - np.log(times)
        pair, _ = inside = np.nonzero(keys > self.discarded[index][:, None])
        row, index, keys = row[pair], index[pair], keys[inside]
        parted = self._parted(np.concatenate([self.keys, keys]), np.concatenate([self.index, index]))
        new, lost = (part[part >= len(self.keys)] - len(self.keys) for part in parted)
        np.maximum.at(self.discarded, index[lost], keys[lost])
        return row[new], index[new], keys[new]

    def _parted(self, keys: Array, index: Index) -> tuple[Index, Index]:
        """Those with the largest keys of every bin, and the others."""
        order = np.lexsort((-keys, index))
        rank = np.arange(len(order)) - np.searchsorted(index[order], index[order])
        return order[rank < self.keep], order[rank >= self.keep]

    def evaluated(self) -> tuple[Tensor, Tensor]:
        """The kept inputs and their outputs."""
        return self.sites, torch.from_numpy(self.outputs)

    def blocks(self) -> Index:
        """The stretch of the run that each kept input is from, of at most `MOST_BLOCKS`."""
        return self.moments * min(self.offers, MOST_BLOCKS) // max(self.offers, 1)

    def standing_weights(self) -> Array:
        """Log Horvitz-Thompson weights: w / (1 - exp(-w e^-t)) with t the largest key rejected."""
        with np.errstate(over="ignore"):
            scaled = np.exp(self.log_weights - self.discarded[self.index])
        chance = np.where(np.isinf(self.discarded[self.index]), 1.0, -np.expm1(-scaled))
        return np.asarray(self.log_weights - np.log(chance))


def keys_of(log_weights: Array, generator: torch.Generator) -> Array:
    uniform = torch.rand(log_weights.shape, dtype=torch.float64, generator=generator)
    return np.asarray(log_weights - np.log(-np.log(uniform.clamp(min=1e-300).numpy())))
