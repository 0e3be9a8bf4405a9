"""From a fractional solution to a set of points: rounding, repair by columns, and a small exact search.

For a fixed number kept, s, the counts must lie within whole-number limits. Most points are rounded at random
(an interior solution spreads them evenly, so the subset is a typical one and not a corner case); the rest are
free in a linear program that minimises the total violation, and points enter it by price until none is left.
Violation is what is priced, not the number kept: for the latter most reduced costs are exactly zero, and
choosing columns by their sign goes wrong. The vertex that comes out has few fractional columns, which a small
integer program settles, or swaps of points do.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import highspy
import numpy as np

from assay.reshaping.array_types import Floats, Integers
from assay.reshaping.solver.certificate import refuted
from assay.reshaping.solver.program import SubsetProblem
from assay.reshaping.solver.swaps import repaired

FREE = 3000  # columns free at first
MORE = 1000  # columns added per round
ROUNDS = 60
FEW = 300  # with at most so many columns the search is exhaustive, and its answer final
AHEAD = 512  # numbers that a refutation is tried on at once


@dataclass(frozen=True)
class Effort:
    """Seconds for each small integer program and for swaps; columns free in the programs, one by one."""

    small: float
    swaps: float
    spare: tuple[int, ...]


QUICK = Effort(small=3.0, swaps=1.0, spare=(600, 1500))
THOROUGH = Effort(small=6.0, swaps=4.0, spare=(1500, 600, 2400))
CLIMB = 40.0  # seconds in all to come closer to the bound once there is an answer


@dataclass(frozen=True, eq=False)
class Relaxed:
    """The fractional solution: counts per column, and what a column's limits are worth (reduced cost)."""

    counts: Floats
    reduced: Floats


@dataclass(frozen=True, eq=False)
class Refutation:
    """Multipliers of the cells and of the total that rule out numbers kept; `certificate.refuted` checks."""

    cells: Floats
    total: float


@dataclass(frozen=True, eq=False)
class Attempt:
    """The result for one number kept: counts per column, or why there are none; neither means undecided."""

    counts: Integers | None = None
    refutation: Refutation | None = None
    exhausted: bool = False


def descend(
    problem: SubsetProblem, relaxed: Relaxed, top: int, seed: int, seconds_left: Callable[[], float]
) -> Iterator[tuple[int, Attempt]]:
    """Attempts from the proven limit downwards until one succeeds, then upwards again; with their outcomes.

    A number that could be neither reached nor ruled out is passed over with growing strides, so that an
    answer comes soon. What was passed over is then tried again with more effort, by halving.
    """
    rng = np.random.default_rng(seed)
    least, number, stride, missed = max(problem.fixed_points, 1), top, 1, 0
    while number >= least:
        outcome = attempt(problem, relaxed, number, rng, seconds_left, QUICK)
        yield number, outcome
        if outcome.counts is not None:
            yield from _climb(problem, relaxed, number, missed, rng, seconds_left)
            return
        if outcome.refutation is not None:
            number = _next_possible(problem, outcome.refutation, number, least)
        elif outcome.exhausted:
            number -= 1
        else:
            missed, number, stride = number, number - stride, 2 * stride


def _climb(
    problem: SubsetProblem,
    relaxed: Relaxed,
    reached: int,
    missed: int,
    rng: np.random.Generator,
    seconds_left: Callable[[], float],
) -> Iterator[tuple[int, Attempt]]:
    """Between a number that was reached and the lowest one that was missed."""
    end = seconds_left() - CLIMB
    while missed - reached > 1 and seconds_left() > max(end, 0.0):
        number = (reached + missed) // 2
        outcome = attempt(problem, relaxed, number, rng, seconds_left, THOROUGH)
        yield number, outcome
        if outcome.counts is not None:
            reached = number
        else:
            missed = number


def attempt(
    problem: SubsetProblem,
    relaxed: Relaxed,
    number: int,
    rng: np.random.Generator,
    seconds_left: Callable[[], float],
    effort: Effort,
) -> Attempt:
    """Counts per column that keep exactly `number` points, or a proof that there are none, or neither."""
    share = (number - problem.fixed_points) / max(float(relaxed.counts.sum()), 1e-9)
    counts = _rounded(np.minimum(relaxed.counts * share, problem.multiplicity), rng)
    repair = Repair(problem, number, counts, _by_worth(relaxed, rng)[:FREE])
    for _ in range(ROUNDS):
        repair.relax(seconds_left())
        if repair.violation < 1e-6:
            return _whole_numbers(repair, rng, seconds_left, effort)
        entering = repair.entering(rng)
        if not len(entering):
            return Attempt(refutation=repair.refutation())
        repair.admit(entering)
    return Attempt()


def _whole_numbers(
    repair: "Repair", rng: np.random.Generator, seconds_left: Callable[[], float], effort: Effort
) -> Attempt:
    """Whole numbers for a fractional solution without violation: by small programs, and by swaps."""
    columns = len(repair.counts)
    if columns <= FEW:
        return Attempt(repair.settle(np.arange(columns), seconds_left()), exhausted=repair.impossible)
    for seed, spare in enumerate(effort.spare):
        found = repair.settle(repair.unsettled(spare), min(effort.small, seconds_left()), seed)
        if found is None and seed == 0:
            seconds = min(effort.swaps, seconds_left())
            found = repaired(repair.problem, repair.number, repair.nearest(), rng, seconds)
        if found is not None:
            return Attempt(found)
    return Attempt()


class Repair:
    """For one number kept: which columns are free, and the linear program that minimises the violation."""

    def __init__(self, problem: SubsetProblem, number: int, counts: Integers, free: Integers) -> None:
        self.problem, self.number = problem, number
        self.counts = counts.copy()
        self.free = np.empty(0, np.int64)
        self.values = np.empty(0)
        self.violation = np.inf
        self.impossible = False
        low, high = problem.target.limits(number)
        self.low = np.append(low - problem.fixed, number - problem.fixed_points).astype(np.float64)
        self.high = np.append(high - problem.fixed, number - problem.fixed_points).astype(np.float64)
        self.used = self._column_totals(np.arange(len(counts)))
        self.solver = _solver(np.inf)
        self._elastic_rows()
        self.admit(free)

    def admit(self, columns: Integers) -> None:
        """Set more columns free: their counts leave the rows and become variables."""
        self.used -= self._column_totals(columns)
        self.counts[columns] = 0
        self.free = np.append(self.free, columns)
        self._bound_rows(self.solver, self.used)
        _add_columns(self.solver, self._rows(columns), self.problem.multiplicity[columns])

    def relax(self, seconds: float) -> None:
        self.solver.setOptionValue("time_limit", self.solver.getRunTime() + max(seconds, 0.1))
        self.solver.run()
        solution = self.solver.getSolution()
        elastic = 2 * len(self.low)
        self.violation = float(self.solver.getInfo().objective_function_value)
        self.values = np.array(solution.col_value)[elastic:]
        self.duals = np.array(solution.row_dual)

    def entering(self, rng: np.random.Generator) -> Integers:
        """Columns outside whose change would lessen the violation, the most promising first."""
        prices = self.problem.patterns.prices(self.duals[:-1]) + self.duals[-1]
        prices[self.free] = 0.0
        helps = np.where(prices > 0, self.counts < self.problem.multiplicity, self.counts > 0)
        gains = np.where(helps, np.abs(prices), 0.0)
        promising = np.flatnonzero(gains > 1e-7)
        order = np.lexsort((rng.random(len(promising)), -gains[promising]))
        return promising[order[:MORE]]

    def refutation(self) -> Refutation:
        return Refutation(self.duals[:-1].copy(), float(self.duals[-1]))

    def unsettled(self, spare: int) -> Integers:
        """Free columns: the fractional ones, and others that came in early."""
        fractional = np.abs(self.values - np.rint(self.values)) > 1e-6
        return np.append(self.free[fractional], self.free[~fractional][:spare])

    def nearest(self) -> Integers:
        """All counts, the fractional ones rounded."""
        counts = self.counts.copy()
        counts[self.free] = np.rint(self.values).astype(np.int64)
        return counts

    def settle(self, columns: Integers, seconds: float, seed: int = 0) -> Integers | None:
        """All counts, with new whole numbers for these columns; None if none was found in time."""
        counts = self.nearest()
        counts[columns] = 0
        solver = _solver(seconds)
        solver.setOptionValue("random_seed", seed)
        _add_rows(solver, self.low, self.high)
        self._bound_rows(solver, self._totals(counts))
        _add_columns(solver, self._rows(columns), self.problem.multiplicity[columns], integer=True)
        solver.run()
        if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            self.impossible = solver.getModelStatus() == highspy.HighsModelStatus.kInfeasible
            return None
        counts[columns] = np.rint(np.array(solver.getSolution().col_value)).astype(np.int64)
        return counts

    def _rows(self, columns: Integers) -> Integers:
        """(columns, neurons + 1): the rows each column is in, the last one being the total."""
        rows = self.problem.patterns.take(columns).rows()
        return np.column_stack([rows, np.full(len(columns), len(self.low) - 1)])

    def _column_totals(self, columns: Integers) -> Floats:
        counts = self.counts[columns].astype(np.float64)
        return np.append(self.problem.patterns.take(columns).totals(counts), counts.sum())

    def _totals(self, counts: Integers) -> Floats:
        values = counts.astype(np.float64)
        return np.append(self.problem.patterns.totals(values), values.sum())

    def _elastic_rows(self) -> None:
        """One row per cell and one for the total, each with two columns that pay for a violation."""
        rows = len(self.low)
        _add_rows(self.solver, self.low, self.high)
        for value in (1.0, -1.0):
            self.solver.addCols(
                rows,
                np.ones(rows),
                np.zeros(rows),
                np.full(rows, np.inf),
                rows,
                np.arange(rows, dtype=np.int32),
                np.arange(rows, dtype=np.int32),
                np.full(rows, value),
            )

    def _bound_rows(self, solver: "highspy.Highs", used: Floats) -> None:
        for row, (low, high) in enumerate(zip(self.low - used, self.high - used, strict=True)):
            solver.changeRowBounds(row, low, high)


def _solver(seconds: float) -> "highspy.Highs":
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("mip_feasibility_tolerance", 1e-9)
    solver.setOptionValue("time_limit", max(seconds, 0.1))
    return solver


def _add_rows(solver: "highspy.Highs", low: Floats, high: Floats) -> None:
    none, reals = np.empty(0, np.int32), np.empty(0)
    solver.addRows(len(low), low, high, 0, np.zeros(len(low), np.int32), none, reals)


def _add_columns(solver: "highspy.Highs", rows: Integers, upper: Integers, integer: bool = False) -> None:
    columns, height = rows.shape
    first = solver.getNumCol()
    solver.addCols(
        columns,
        np.zeros(columns),
        np.zeros(columns),
        upper.astype(np.float64),
        columns * height,
        (height * np.arange(columns)).astype(np.int32),
        rows.ravel().astype(np.int32),
        np.ones(columns * height),
    )
    if integer:
        kinds = np.full(columns, highspy.HighsVarType.kInteger)
        solver.changeColsIntegrality(columns, np.arange(first, first + columns, dtype=np.int32), kinds)


def _rounded(values: Floats, rng: np.random.Generator) -> Integers:
    """Whole numbers next to the values, at random, with a total next to theirs (systematic sampling)."""
    base = np.floor(values)
    order = rng.permutation(len(values))
    reached = np.floor(np.cumsum((values - base)[order]) + rng.random())
    base[order] += np.diff(reached, prepend=0.0)
    return base.astype(np.int64)


def _by_worth(relaxed: Relaxed, rng: np.random.Generator) -> Integers:
    """Columns in the order in which they become free: the least reduced cost first, equal ones at random."""
    return np.lexsort((rng.random(len(relaxed.counts)), np.round(np.abs(relaxed.reduced), 7)))


def _next_possible(problem: SubsetProblem, refutation: Refutation, number: int, least: int) -> int:
    """The largest smaller number that the refutation does not rule out."""
    while number > least:
        numbers = np.arange(number - 1, max(number - 1 - AHEAD, least - 1), -1)
        possible = ~refuted(problem, numbers, refutation.cells, refutation.total)
        if possible.any():
            return int(numbers[possible.argmax()])
        number = int(numbers[-1])
    return least - 1
