"""The problem of Definition 4 and the linear programs around it, in numbers alone (no torch, no networks).

Written over the kept points instead of the removed ones (x = 1 - br of Eq. 8), with the number kept, s, as
one extra variable, Eq. 8 becomes linear without any further step:

    (p_r - epsilon) s <= f_r + sum of x over the points in cell r <= (p_r + epsilon) s     for every cell r

where p_r is the operational portion of the cell and f_r counts the points that may not be removed. With
t_r = (p_r + epsilon) s - f_r - (P x)_r this is the shape that `interior` solves.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.reshaping.array_types import Floats, Integers
from assay.reshaping.solver.interior import Program
from assay.reshaping.solver.patterns import Patterns


@dataclass(frozen=True, eq=False)
class PortionTarget:
    """The operational counts per cell, from `total` inputs, to be matched within epsilon."""

    counts: Integers
    total: int
    epsilon: float

    @property
    def portions(self) -> Floats:
        return self.counts / self.total

    def part(self, cells: slice) -> "PortionTarget":
        return PortionTarget(self.counts[cells], self.total, self.epsilon)

    def limits(self, kept: Integers | int) -> tuple[Integers, Integers]:
        """Least and most points a cell may hold when `kept` points are kept in all (Definition 3, exactly).

        Several numbers at once give one row each. The comparison is the one `portion_similarity` makes, in
        whole numbers up to one division.
        """
        number = np.asarray(kept, np.int64)[..., None]
        low = np.ceil((self.portions - self.epsilon) * number).astype(np.int64)
        high = np.floor((self.portions + self.epsilon) * number).astype(np.int64)
        low += np.where(self._similar(low, number), -self._similar(low - 1, number).astype(np.int64), 1)
        high += np.where(self._similar(high, number), self._similar(high + 1, number).astype(np.int64), -1)
        return np.maximum(low, 0), high

    def _similar(self, counts: Integers, number: Integers) -> NDArray[np.bool_]:
        difference = np.abs(self.counts * number - counts * self.total)
        return np.asarray(difference / (self.total * number) <= self.epsilon)


@dataclass(frozen=True, eq=False)
class SubsetProblem:
    """Candidates for removal, as distinct patterns that occur so many times each, and points that stay.

    `fixed` counts the points that stay per cell; `fixed_points` is how many they are.
    """

    patterns: Patterns
    multiplicity: Integers
    fixed: Integers
    fixed_points: int
    target: PortionTarget

    @cached_property
    def available(self) -> Integers:
        """Test points per cell, candidates and fixed ones."""
        candidates = self.patterns.totals(self.multiplicity.astype(np.float64))
        return self.fixed + np.rint(candidates).astype(np.int64)

    def similarity(self, counts: Integers) -> float:
        """The smallest epsilon for which so many of each pattern, and the points that stay, are similar."""
        kept = int(counts.sum()) + self.fixed_points
        cells = np.rint(self.patterns.totals(counts.astype(np.float64))).astype(np.int64) + self.fixed
        difference = np.abs(self.target.counts * kept - cells * self.target.total)
        return float(difference.max() / (self.target.total * kept))

    def arrays(self) -> dict[str, Any]:
        """The problem as arrays for a file; `from_arrays` is the way back."""
        return {
            "codes": self.patterns.codes,
            "sizes": np.array(self.patterns.sizes),
            "multiplicity": self.multiplicity,
            "fixed": self.fixed,
            "fixed_points": self.fixed_points,
            "counts": self.target.counts,
            "total": self.target.total,
            "epsilon": self.target.epsilon,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> "SubsetProblem":
        return cls(
            Patterns(arrays["codes"], tuple(int(size) for size in arrays["sizes"])),
            arrays["multiplicity"],
            arrays["fixed"],
            int(arrays["fixed_points"]),
            PortionTarget(arrays["counts"], int(arrays["total"]), float(arrays["epsilon"])),
        )


def distinct(patterns: Patterns) -> tuple[Patterns, Integers, Integers]:
    """The different patterns, how often each occurs, and which one each point has.

    Points of one pattern are interchangeable, so they become one column. Rows are compared by a random
    64-bit hash, which sorts a million points in a fraction of a second; that no two patterns share a hash
    is checked, and another hash is drawn if they do.
    """
    rng = np.random.default_rng(0)
    while True:
        hashes = np.zeros(patterns.points, np.uint64)
        for codes, size in zip(patterns.codes, patterns.sizes, strict=True):
            hashes += rng.integers(0, 2**64, size, np.uint64)[codes]
        _, first, member, multiplicity = np.unique(
            hashes, return_index=True, return_inverse=True, return_counts=True
        )
        if all(np.array_equal(codes[first[member]], codes) for codes in patterns.codes):
            return patterns.take(first), multiplicity.astype(np.int64), member.astype(np.int64)


def relaxation(problem: SubsetProblem) -> Program:
    """Definition 4 with fractional points: the most that can be kept."""
    portions, epsilon = problem.target.portions, problem.target.epsilon
    return Program(
        problem.patterns,
        cost=np.zeros(problem.patterns.points),
        scalar_cost=-1.0,
        slope=portions + epsilon,
        constant=-problem.fixed.astype(np.float64),
        balance=_over_first_neuron(problem, portions + epsilon) - 1.0,
        allowance=2 * epsilon,
        upper=problem.multiplicity.astype(np.float64),
    )


def smallest_epsilon(problem: SubsetProblem) -> Program:
    """The least epsilon for which some weighting of the candidates is similar; z is epsilon times points.

    Weights are free in size, so no subset can do better. Points that stay are left out.
    """
    return Program(
        problem.patterns,
        cost=np.zeros(problem.patterns.points),
        scalar_cost=1.0,
        slope=np.ones(problem.patterns.cells),
        constant=problem.patterns.points * problem.target.portions,
        balance=float(problem.patterns.sizes[0]),
        allowance=2.0,
    )


def extreme(problem: SubsetProblem, numerator: Floats, denominator: Floats, sign: float) -> Program:
    """Least (sign 1) or greatest (sign -1) ratio of weighted sums over all weightings within epsilon.

    The ratio is linear-fractional; fixing its denominator makes it linear (Charnes and Cooper). Per pattern,
    `numerator` and `denominator` are what one unit of weight adds; weights have no upper limit.
    """
    slope = problem.target.portions + problem.target.epsilon
    return Program(
        problem.patterns,
        cost=sign * numerator,
        scalar_cost=0.0,
        slope=slope,
        constant=np.zeros(problem.patterns.cells),
        balance=_over_first_neuron(problem, slope) - 1.0,
        allowance=2 * problem.target.epsilon,
        dense=denominator / problem.patterns.points,
    )


def _over_first_neuron(problem: SubsetProblem, values: Floats) -> float:
    return float(values[: problem.patterns.sizes[0]].sum())
