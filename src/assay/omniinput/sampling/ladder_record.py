"""LadderRecord: fine-bin counts of the chains of one ladder in time blocks, and inputs per bin."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.omniinput.sampling.output_bins import bin_index
from assay.omniinput.sampling.representatives import Representatives, keys_of
from assay.omniinput.sampling.time_blocks import TimeBlocks
from assay.storage import storable

Array = NDArray[np.float64]
Index = NDArray[np.int64]


@storable("omniinput.LadderRecord")
@dataclass
class LadderRecord:
    """Counts of all rungs together suffice for reweighting, since every rung gives equally many samples.

    `expected` are log weights of a visit to each fine bin, as far as they were known when the record was
    opened: inputs are kept in proportion to them. Density changes by tens of nats across a wide bin, so that
    of inputs kept per visit only the few at its likely end would carry its weight.
    """

    edges: Array
    fine: Array
    ensembles: int
    blocks: TimeBlocks
    representatives: Representatives
    expected: Array
    steps: int = 0
    lowest: float = np.inf
    highest: float = -np.inf

    @classmethod
    def start(cls, edges: Array, fine: Array, ensembles: int, keep: int, sites: int) -> "LadderRecord":
        kept = Representatives.empty(len(edges) - 1, keep, sites)
        return cls(edges, fine, ensembles, TimeBlocks({}), kept, np.zeros(len(fine) + 1))

    @property
    def owner(self) -> Index:
        """The reported bin of every fine bin, -1 outside."""
        starts = np.concatenate([[-np.inf], self.fine])
        return np.where(
            (starts >= self.edges[0]) & (starts < self.edges[-1]),
            np.searchsorted(self.edges, starts, side="right") - 1,
            -1,
        )

    def add(self, outputs: Array) -> None:
        """The outputs of a chunk of steps: (steps, ensembles, rungs)."""
        steps, ensembles, _ = outputs.shape
        cells = np.searchsorted(self.fine, outputs, side="right")
        size = len(self.fine) + 1
        place = cells + (np.arange(ensembles) * size)[:, None]
        counts = np.bincount(place.ravel(), minlength=ensembles * size).astype(np.float64)
        sums = np.bincount(place.ravel(), outputs.ravel(), ensembles * size).astype(np.float64)
        self.blocks.add(
            {
                "counts": counts.reshape(ensembles, size),
                "sums": sums.reshape(ensembles, size),
                "rungs": outputs.sum(axis=0),
                "steps": np.array(float(steps)),
            }
        )
        self.steps += steps
        self.lowest = min(self.lowest, float(outputs.min()))
        self.highest = max(self.highest, float(outputs.max()))

    def settled(self) -> tuple[Array, Array]:
        """Mean output and number of the samples in each fine bin, over the later half of the time."""
        blocks = self.blocks.whole()
        late = slice(len(blocks["steps"]) // 2, None)
        counts, sums = (blocks[name][late].sum(axis=(0, 1)) for name in ("counts", "sums"))
        return np.divide(sums, counts, out=np.zeros_like(sums), where=counts > 0), counts

    def expect(self, log_weight: Callable[[Array], Array]) -> None:
        """From now on keep inputs in proportion to this function of their output."""
        padded = np.concatenate([self.fine[:1], self.fine, self.fine[-1:]])
        self.expected = log_weight((padded[1:] + padded[:-1]) / 2)

    def expected_of(self, outputs: Array) -> Array:
        return np.asarray(self.expected[np.searchsorted(self.fine, outputs, side="right")])

    def offer(self, sites: Tensor, outputs: Array, generator: torch.Generator) -> None:
        """States that may serve as representative inputs, by the weight that a visit is expected to have."""
        weights = self.expected_of(outputs)
        index = bin_index(outputs, self.edges)
        self.representatives.offer(sites, outputs, weights, keys_of(weights, generator), index)
