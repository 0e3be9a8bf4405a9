"""Ours against the plain program of Eq. 8 in HiGHS, through scipy: large, degenerate, infeasible."""

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import csr_array, hstack, vstack

from assay.reshaping.solver import Patterns, PortionTarget, SubsetProblem, certificate, distinct, interior
from assay.reshaping.solver.program import relaxation, smallest_epsilon
from assay.reshaping.solver.rounding import Relaxed, descend


def problem_of(codes, counts, total, epsilon):
    """Every point may be removed; `codes` is (neurons, points)."""
    sizes = tuple(len(row) for row in counts)
    patterns, multiplicity, _ = distinct(Patterns(np.asarray(codes), sizes))
    fixed = np.zeros(sum(sizes), np.int64)
    return SubsetProblem(
        patterns, multiplicity, fixed, 0, PortionTarget(np.concatenate(counts), total, epsilon)
    )


def rows_of_eq_8(problem):
    """(p - epsilon) s <= kept in the cell <= (p + epsilon) s, and s = kept in all; columns (x, s)."""
    patterns, target = problem.patterns, problem.target
    cells = patterns.rows()
    points = np.repeat(np.arange(patterns.points), cells.shape[1])
    inside = csr_array((np.ones(cells.size), (cells.ravel(), points)), (patterns.cells, patterns.points))
    most, least = target.portions + target.epsilon, target.portions - target.epsilon
    limits = vstack(
        [
            hstack([inside, csr_array(-most[:, None])]),
            hstack([-inside, csr_array(least[:, None])]),
        ]
    )
    total = csr_array(np.append(np.ones(patterns.points), -1.0)[None])
    return limits, total


def most_by_highs(problem, *, whole):
    """The most that can be kept, as whole points or fractions; None where nothing can."""
    limits, total = rows_of_eq_8(problem)
    cost = np.zeros(limits.shape[1])
    cost[-1] = -1.0
    upper = np.append(problem.multiplicity, problem.multiplicity.sum()).astype(float)
    least = np.zeros(len(upper))
    least[-1] = 1.0 if whole else 0.0
    if not whole:
        found = linprog(
            cost, limits, np.zeros(limits.shape[0]), total, [0.0], np.stack([least, upper], axis=1), "highs"
        )
        return -found.fun if found.status == 0 else None
    # Products of a portion and a number round; a point is far more than this.
    rows = [LinearConstraint(limits, -np.inf, 1e-9), LinearConstraint(total, 0, 0)]
    found = milp(cost, constraints=rows, bounds=Bounds(least, upper), integrality=np.ones(len(upper)))
    return round(-found.fun) if found.status == 0 else None


def most_by_ours(problem):
    iterate = interior.solution(relaxation(problem))
    top = certificate.best_bound(problem, iterate.multipliers)
    relaxed = Relaxed(iterate.x, iterate.reduced_costs)
    kept = 0
    for _, attempt in descend(problem, relaxed, top, 0, lambda: 60.0):
        if attempt.counts is not None:
            kept = int(attempt.counts.sum())
    return kept


def drawn(points, neurons, size, shares, seed):
    rng = np.random.default_rng(seed)
    return rng.choice(size, (neurons, points), p=np.array(shares) / sum(shares))


def counted(codes, size):
    return [np.bincount(row, minlength=size) for row in codes]


def test_the_relaxation_of_20_000_points_is_that_of_highs():
    test, outside = drawn(20_000, 5, 4, (4, 3, 2, 1), 0), drawn(5_300, 5, 4, (3, 3, 2, 2), 1)
    problem = problem_of(test, counted(outside, 4), 5_300, 0.01)
    iterate = interior.solution(relaxation(problem))
    expected = most_by_highs(problem, whole=False)
    assert iterate.z == pytest.approx(expected, rel=1e-6)
    assert certificate.bound(problem, iterate.multipliers) == pytest.approx(expected, rel=1e-6)
    # In whole points it is the limit rounded down, or a few below it.
    assert 0 <= int(expected) - most_by_ours(problem) <= 0.001 * expected


@pytest.mark.parametrize(
    ("codes", "counts", "epsilon"),
    [
        pytest.param([[0] * 7, [0] * 7], [[9], [9]], 0.1, id="every point the same"),
        pytest.param([[0, 1, 0, 1], [0, 1, 0, 1]], [[5, 5], [5, 5]], 0.01, id="one neuron repeats another"),
        pytest.param([[0, 0, 1, 1, 1], [0, 0, 0, 0, 0]], [[5, 5], [10]], 0.01, id="one neuron never changes"),
        pytest.param([[0, 1, 2]], [[1, 1, 1]], 1e-6, id="nothing needs to go"),
        pytest.param([[0, 0, 0, 1]], [[0, 8]], 0.01, id="one point is left"),
        pytest.param([[0, 1, 1, 2, 2, 2]], [[1, 0, 0]], 0.4, id="cells that operation never fills"),
    ],
)
def test_degenerate_problems_end_as_highs_says(codes, counts, epsilon):
    counts = [np.array(row) for row in counts]
    problem = problem_of(np.array(codes), counts, int(counts[0].sum()), epsilon)
    assert most_by_ours(problem) == most_by_highs(problem, whole=True)


@pytest.mark.parametrize("seed", range(3))
def test_infeasible_problems_are_so_for_highs_and_the_least_epsilon_is_where_they_end(seed):
    test, outside = drawn(60, 3, 3, (8, 1, 0), seed), drawn(40, 3, 3, (1, 2, 3), 10 + seed)
    problem = problem_of(test, counted(outside, 3), 40, 0.05)
    assert most_by_highs(problem, whole=True) is None
    assert not most_by_highs(problem, whole=False)
    assert most_by_ours(problem) == 0
    least = certificate.least_epsilon(problem, interior.solution(smallest_epsilon(problem)).multipliers)
    for factor, possible in ((0.99, False), (1.01, True)):
        near = problem_of(test, counted(outside, 3), 40, least * factor)
        assert bool(most_by_highs(near, whole=False)) is possible


def test_example_2_gives_equation_9():
    """Table 2: i = 3, j = 4 holds in_1 and in_3, so keeping all of them leaves 2 of 3 in that bin."""
    bins = np.array([[1, 4, 4], [2, 1, 2], [0, 3, 4]])  # rows in_1 to in_3, columns neurons 1 to 3
    outside = np.array([[1, 4, 4], [0, 3, 4]])  # operation: nothing like in_2
    counts = [np.bincount(column, minlength=5) for column in outside.T]
    problem = problem_of(bins.T, counts, 2, 0.1)
    limits, _ = rows_of_eq_8(problem)
    cell = 2 * 5 + 4
    order = [int(np.flatnonzero((row == problem.patterns.codes.T).all(axis=1))[0]) for row in bins]
    row = limits.toarray()[cell]
    # ct(4, B_3(D_test)) - br_1 - br_3 is what is kept of in_1 and in_3.
    assert row[order].tolist() == [1.0, 0.0, 1.0]
    assert row[-1] == pytest.approx(-(1.0 + 0.1))

    def similar(removed):
        """Eq. 9 for every i and j, with br as it stands in the paper."""
        kept = [point for point, gone in zip(bins, removed, strict=True) if not gone]
        if not kept:
            return False
        cells = [np.bincount(column, minlength=5) for column in np.array(kept).T]
        return all(
            (np.abs(ours / len(kept) - theirs / 2) <= 0.1 + 1e-12).all()
            for ours, theirs in zip(cells, counts, strict=True)
        )

    fewest = min(sum(br) for br in np.ndindex(2, 2, 2) if similar(br))
    assert fewest == 1
    assert similar((0, 1, 0))
    assert most_by_ours(problem) == most_by_highs(problem, whole=True) == 3 - fewest
