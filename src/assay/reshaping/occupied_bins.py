"""Occupied bins, called cells: those that occur in the test set or in operation, numbered without gaps."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from assay.reshaping.array_types import Integers
from assay.reshaping.histogram import Histogram
from assay.reshaping.solver import Patterns, PortionTarget, SubsetProblem, distinct


@dataclass(frozen=True, eq=False)
class OccupiedBins:
    """The patterns of all test points, the operational counts per cell, and which bin each cell is."""

    patterns: Patterns
    operational: Integers
    neuron: Integers
    bin: Integers

    @classmethod
    def of(cls, bins: NDArray[Any], operational: Histogram) -> "OccupiedBins":
        """`bins` is (points, neurons) as returned by `Bins.cells`; O(points x neurons)."""
        first = min(int(bins.min(initial=0)), operational.first)
        last = max(int(bins.max(initial=0)), operational.first + operational.window.shape[1] - 1)
        outside = operational.between(first, last)
        codes, sizes, neurons, names, counts = [], [], [], [], []
        for neuron in range(bins.shape[1]):
            shifted = bins[:, neuron] - first
            present = (np.bincount(shifted, minlength=last - first + 1) > 0) | (outside[neuron] > 0)
            number = np.cumsum(present) - 1
            codes.append(number[shifted])
            sizes.append(int(present.sum()))
            neurons.append(np.full(sizes[-1], neuron))
            names.append(np.flatnonzero(present) + first)
            counts.append(outside[neuron][present])
        kind = np.min_scalar_type(max(sizes))
        return cls(
            Patterns(np.stack(codes).astype(kind), tuple(sizes)),
            np.concatenate(counts),
            np.concatenate(neurons),
            np.concatenate(names),
        )

    def problem(
        self, total: int, epsilon: float, candidates: NDArray[np.bool_] | None = None
    ) -> tuple[SubsetProblem, Integers]:
        """Definition 4 over distinct patterns, and which of them each candidate has."""
        removable = np.ones(self.patterns.points, bool) if candidates is None else candidates
        fixed = self.patterns.take(np.flatnonzero(~removable))
        patterns, multiplicity, member = distinct(self.patterns.take(np.flatnonzero(removable)))
        target = PortionTarget(self.operational, total, epsilon)
        counts = np.rint(fixed.totals()).astype(np.int64)
        return SubsetProblem(patterns, multiplicity, counts, fixed.points, target), member

    def frame(self, operational: Histogram, **points: NDArray[np.bool_]) -> pd.DataFrame:
        """A row per cell: neuron, bin, the operational portion, and the portion of each set of points."""
        names = np.array(operational.bins.names(len(operational.window)))
        columns: dict[str, Any] = {
            "neuron": names[self.neuron].tolist(),
            "bin": self.bin,
            "operational": self.operational / max(operational.total, 1),
        }
        for name, mask in points.items():
            counts = self.patterns.totals(mask.astype(np.float64))
            columns[name] = counts / max(int(mask.sum()), 1)
        return pd.DataFrame(columns)
