"""Histogram: how often each watched neuron's value fell into each bin. Counts, and nothing else."""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from assay.engine import mapped
from assay.errors import InputError
from assay.identity import digest
from assay.network import Network
from assay.notebook import Shown
from assay.reshaping.array_types import Integers
from assay.reshaping.bins import Bins
from assay.reshaping.privacy import Privacy, private_counts
from assay.sharded_trace import Shard, ShardedTrace
from assay.storage import storable
from assay.table import tabled
from assay.trace import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LARGEST = 2**27  # cells of a dense table: a gigabyte


@storable("Histogram")
@dataclass(frozen=True, eq=False)
class Histogram(Shown):
    """The multisets of Eq. 3 for all watched neurons, as counts.

    Merge histograms with `+` or `sum`, in any order. Only the columns between the lowest and the highest bin
    that occurred are stored, because sound bounds leave most bins empty: `window[i, k]` counts neuron i in
    bin `first + k`, where -1 and `bins.longest + 1` stand for below and above all bins. Bins carry the
    fingerprint of their network (see `Bins.from_bounds`), so histograms of different networks or bins refuse
    to merge.
    """

    title = "Neuron histogram"

    bins: Bins
    window: Integers
    first: int
    total: int
    privacy: Privacy | None = None

    @classmethod
    def of(
        cls, trace: Trace | Iterable[Trace], bins: Bins, *, engine: str = "here", workers: int | None = None
    ) -> "Histogram":
        """Count the rows of a Trace, or of a stream of Traces or a ShardedTrace; O(rows x neurons).

        On an engine ("processes" or "ray") every Trace or shard is a job.
        """
        if not isinstance(trace, Trace):
            parts = trace.shards if isinstance(trace, ShardedTrace) else trace
            counts = mapped(partial(_counted, bins), parts, engine, workers=workers, description="counting")
            first = next(counts, None)
            if first is None:
                raise InputError("expected at least one Trace to count, got none; pass an iterable of Traces")
            return sum(counts, start=first)
        return cls.of_cells(bins.cells(trace), bins)

    @classmethod
    def of_cells(cls, cells: Tensor, bins: Bins) -> "Histogram":
        """Count rows whose bins are already known, as returned by `Bins.cells`."""
        neurons = cells.shape[1]
        if not len(cells):
            return cls(bins, np.zeros((neurons, 1), np.int64), 0, 0)
        first, last = int(cells.min()), int(cells.max())
        width = last - first + 1
        keys = (cells.long() - first) + width * torch.arange(neurons)
        counts = torch.bincount(keys.flatten(), minlength=neurons * width).reshape(neurons, width)
        return cls(bins, counts.numpy(), first, len(cells))

    @property
    def counts(self) -> Integers:
        """(neurons, N + 1): counts per bin; values outside all bins are in `outside`."""
        neurons, columns = len(self.window), self.bins.longest + 1
        if neurons * columns > LARGEST:
            raise InputError(
                f"expected at most {LARGEST} cells in a dense table, got {neurons} neurons x {columns} bins; "
                "read `window` and `first` instead, or use wider bins or sharper bounds"
            )
        return self.between(0, self.bins.longest)

    @property
    def outside(self) -> Integers:
        """(neurons, 2): how many values fell below and above all bins; zero without overflow bins."""
        beyond = self.bins.longest + 1
        return np.concatenate([self.between(-1, -1), self.between(beyond, beyond)], axis=1)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the bins and the network they belong to."""
        return digest(dataclasses.asdict(self.bins))

    def __add__(self, other: "Histogram") -> "Histogram":
        if not isinstance(other, Histogram):
            return NotImplemented
        first, ours, theirs = self.aligned(other)
        return Histogram(
            self.bins,
            ours + theirs,
            first,
            self.total + other.total,
            self.privacy and other.privacy and self.privacy.merged(other.privacy),
        )

    def __radd__(self, other: Any) -> "Histogram":
        return self if other == 0 else NotImplemented

    def aligned(self, other: "Histogram") -> tuple[int, Integers, Integers]:
        """The lowest bin that either has, and the counts of both from there to the highest."""
        self.check_same_bins(other)
        first = min(self.first, other.first)
        last = max(self.first + self.window.shape[1], other.first + other.window.shape[1]) - 1
        return first, self.between(first, last), other.between(first, last)

    def check_same_bins(self, other: "Histogram") -> None:
        """Raise an error if the other histogram counts something else."""
        if self.bins.network != other.bins.network:
            raise InputError(
                f"expected histograms of the same network, got fingerprints {self.bins.network} and "
                f"{other.bins.network}; count both with bins made for the same weights"
            )
        if self.bins != other.bins or len(self.window) != len(other.window):
            different = [
                field.name
                for field in dataclasses.fields(self.bins)
                if getattr(self.bins, field.name) != getattr(other.bins, field.name)
            ]
            raise InputError(
                f"expected histograms over the same bins, got different {', '.join(different) or 'neurons'}; "
                "count both with the same Bins object"
            )

    def check_usable(self, network: Network | None = None) -> None:
        """Raise an error if nothing was counted, or if another network was."""
        if not self.total:
            raise InputError("expected an operational histogram with at least one input, got an empty one")
        if network is not None and network.fingerprint != self.bins.network:
            raise InputError(
                f"expected a histogram of this network ({network.fingerprint}), got one of "
                f"{self.bins.network}; count operation with bins made for these weights"
            )

    def private(
        self,
        epsilon: float,
        *,
        delta: float = 0.0,
        mechanism: str = "geometric",
        seed: int | None = None,
    ) -> "Histogram":
        """With noise that makes it (epsilon, delta)-differentially private for adding or removing one input.

        Noise is added to every cell, empty ones too, so use few bins. Leave `seed` None on a device: anyone
        who knows the seed can remove the noise. Details: `assay.reshaping.privacy`.
        """
        return self._noisy(Privacy(epsilon, delta, mechanism), seed)

    def with_noise_of(self, other: "Histogram", rng: np.random.Generator) -> "Histogram":
        """With as much noise as the other has, for experiments: these counts protect nobody."""
        return self if other.privacy is None else self._noisy(other.privacy, rng)

    def _noisy(self, privacy: Privacy, seed: int | np.random.Generator | None) -> "Histogram":
        first, lasts = self.bins.first, self.bins.lasts(len(self.window))
        if len(self.window) * (int(lasts.max()) - first + 1) > LARGEST:
            raise InputError(
                f"expected at most {LARGEST} cells to add noise to, got {len(self.window)} neurons x "
                f"{int(lasts.max()) - first + 1} bins; use wider bins or fewer neurons"
            )
        cells = self.between(first, int(lasts.max()))
        counts, total = private_counts(cells, lasts - first + 1, privacy, seed)
        return Histogram(self.bins, counts, first, total, privacy)

    def summary(self) -> str:
        """The counts in words."""
        occupied = int((self.window > 0).sum())
        text = f"{self.total:,} inputs were counted for {len(self.window)} neurons, in {occupied} bins. "
        if outside := int(self.outside.sum()):
            text += f"{outside:,} values fell outside all bins and were counted in the overflow bins. "
        if self.privacy:
            text += f"The counts are {self.privacy.describe()}. "
        return text.strip()

    @tabled
    def to_frame(self) -> pd.DataFrame:
        """A row per neuron and occupied bin: neuron, bin, lower, upper, count, portion."""
        neurons, columns = np.nonzero(self.window)
        names = self.bins.names(len(self.window))
        edges = [self.bins.edges(neuron, len(self.window)) for neuron in range(len(self.window))]
        bins = columns + self.first
        rows = []
        for neuron, cell in zip(neurons, bins, strict=True):
            ends = np.concatenate([[-np.inf], edges[neuron], [np.inf]])
            position = len(ends) - 2 if cell > self.bins.longest else int(cell) + 1
            rows.append((names[neuron], int(cell), ends[position], ends[position + 1]))
        frame = pd.DataFrame(rows, columns=["neuron", "bin", "lower", "upper"])
        frame["count"] = self.window[neurons, columns]
        frame["portion"] = frame["count"] / max(self.total, 1)
        return frame

    def plot(self) -> "Figure":
        """Portions per bin of the first six neurons."""
        from assay.reshaping.figures import histogram_figure

        return histogram_figure({"counted": self})

    def between(self, first: int, last: int) -> Integers:
        """The columns of bins first to last; zero where nothing was counted."""
        columns = np.zeros((len(self.window), last - first + 1), np.int64)
        start = max(first, self.first)
        stop = min(last + 1, self.first + self.window.shape[1])
        if start < stop:
            columns[:, start - first : stop - first] = self.window[:, start - self.first : stop - self.first]
        return columns


def _counted(bins: Bins, part: Trace | Shard) -> Histogram:
    return Histogram.of(part.trace() if isinstance(part, Shard) else part, bins)
