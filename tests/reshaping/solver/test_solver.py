"""The solver against enumeration, against HiGHS on the plain program of Eq. 8, and against its own proofs."""

import itertools

import highspy
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from assay.reshaping.solver import certificate, interior
from assay.reshaping.solver.patterns import Patterns
from assay.reshaping.solver.program import (
    PortionTarget,
    SubsetProblem,
    distinct,
    extreme,
    relaxation,
    smallest_epsilon,
)
from assay.reshaping.solver.rounding import Relaxed, descend
from assay.reshaping.solver.swaps import repaired

EPSILONS = (0.05, 0.1, 0.2, 0.34)


def random_problem(rng, points, neurons=3, sizes=3, epsilon=0.1, fixed=0, seen=40):
    codes = rng.integers(0, sizes, (neurons, points + fixed))
    outside = rng.integers(0, sizes, (neurons, seen))
    outside[:, : seen // 3] = 0
    counts = np.concatenate([np.bincount(row, minlength=sizes) for row in outside])
    all_points = Patterns(codes, (sizes,) * neurons)
    patterns, multiplicity, _ = distinct(all_points.take(np.arange(points)))
    stay = all_points.take(np.arange(points, points + fixed)).totals().astype(np.int64)
    return SubsetProblem(patterns, multiplicity, stay, fixed, PortionTarget(counts, seen, epsilon))


def similar(problem, counts):
    """Eq. 7 for counts per pattern, in exact whole numbers."""
    kept = int(counts.sum()) + problem.fixed_points
    if not kept:
        return False
    cells = problem.patterns.totals(counts.astype(float)).astype(np.int64) + problem.fixed
    target = problem.target
    difference = np.abs(target.counts * kept - cells * target.total)
    assert problem.similarity(counts) == (difference / (target.total * kept)).max()
    return bool((difference / (target.total * kept) <= target.epsilon).all())


def by_enumeration(problem):
    choices = itertools.product(*(range(count + 1) for count in problem.multiplicity))
    kept = [sum(counts) for counts in choices if similar(problem, np.array(counts))]
    return max(kept, default=-problem.fixed_points) + problem.fixed_points


def by_descent(problem):
    """(kept, whether that is proven to be the most): the whole solver, in this process."""
    iterate = interior.solution(relaxation(problem))
    top = certificate.best_bound(problem, iterate.multipliers)
    relaxed = Relaxed(iterate.x, iterate.reduced_costs)
    kept, decided = 0, True
    for number, outcome in descend(problem, relaxed, top, 0, lambda: 60.0):
        if outcome.counts is not None:
            assert similar(problem, outcome.counts)
            assert number == outcome.counts.sum() + problem.fixed_points > kept
            kept = number
        elif outcome.refutation is not None:
            proof = outcome.refutation
            assert certificate.refuted(problem, np.array([number]), proof.cells, proof.total).all()
        else:
            decided = decided and outcome.exhausted
    return kept, decided


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    points=st.integers(1, 11),
    epsilon=st.sampled_from(EPSILONS),
    fixed=st.sampled_from([0, 0, 3]),
)
def test_what_is_kept_is_what_enumeration_finds(seed, points, epsilon, fixed):
    problem = random_problem(np.random.default_rng(seed), points, epsilon=epsilon, fixed=fixed)
    assert by_descent(problem) == (by_enumeration(problem), True)


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), epsilon=st.sampled_from(EPSILONS), scale=st.floats(0.01, 10))
def test_any_multipliers_give_a_valid_bound(seed, epsilon, scale):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, 9, epsilon=epsilon, fixed=int(rng.integers(0, 3)))
    best = by_enumeration(problem)
    cells, total = rng.normal(size=problem.patterns.cells), float(rng.normal())
    if best > 0:  # where nothing is similar, bounds may be anything
        assert certificate.bound(problem, scale * cells) >= best - 1e-9
        assert certificate.single_neuron_bound(problem) >= best
        assert not certificate.refuted(problem, np.array([best]), cells, total).any()


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), points=st.integers(1, 14), epsilon=st.sampled_from(EPSILONS))
def test_one_neuron_alone_is_solved_by_counting(seed, points, epsilon):
    """Remark 1: the greedy answer for one neuron is the optimum."""
    problem = random_problem(np.random.default_rng(seed), points, neurons=1, sizes=4, epsilon=epsilon)
    assert certificate.single_neuron_optimum(problem, 0) == by_enumeration(problem)


def linear_program(problem, cost, scalar_cost, rows):
    """HiGHS on columns (x, z), for comparison; `rows` yields (coefficients of x, of z, low, high)."""
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    columns = problem.patterns.points
    for value, upper in [*((c, u) for c, u in zip(cost, rows.upper, strict=True)), (scalar_cost, np.inf)]:
        solver.addVar(0.0, upper)
        solver.changeColCost(solver.getNumCol() - 1, value)
    for weights, scalar, low, high in rows.rows:
        values = np.append(weights, scalar)
        used = np.flatnonzero(values)
        solver.addRow(low, high, len(used), used.astype(np.int32), values[used])
    solver.run()
    assert solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
    assert solver.getNumCol() == columns + 1
    return solver.getInfo().objective_function_value


class Rows:
    def __init__(self, upper):
        self.upper, self.rows = upper, []

    def add(self, weights, scalar, low, high):
        self.rows.append((weights, scalar, low, high))


def one_hot(problem):
    matrix = np.zeros((problem.patterns.cells, problem.patterns.points))
    columns = np.arange(problem.patterns.points)
    for codes, span in zip(problem.patterns.codes, problem.patterns.spans(), strict=True):
        matrix[span.start + codes.astype(int), columns] = 1
    return matrix


@pytest.mark.parametrize("seed", range(4))
def test_the_relaxation_is_that_of_highs(seed):
    problem = random_problem(np.random.default_rng(seed), 300, neurons=5, sizes=6, epsilon=0.03)
    target, matrix = problem.target, one_hot(problem)
    rows = Rows(problem.multiplicity.astype(float))
    for row, portion in zip(matrix, target.portions, strict=True):
        rows.add(row, -(portion + target.epsilon), -np.inf, 0.0)
        rows.add(row, -(portion - target.epsilon), 0.0, np.inf)
    rows.add(np.ones(problem.patterns.points), -1.0, 0.0, 0.0)
    expected = -linear_program(problem, np.zeros(problem.patterns.points), -1.0, rows)
    iterate = interior.solution(relaxation(problem))
    # The method stops at a relative gap of 1e-8.
    assert iterate.z == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert certificate.bound(problem, iterate.multipliers) == pytest.approx(expected, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_the_least_epsilon_is_that_of_highs(seed):
    problem = random_problem(np.random.default_rng(seed), 25, neurons=5, sizes=6)
    rows = Rows(np.full(problem.patterns.points, np.inf))
    for row, portion in zip(one_hot(problem), problem.target.portions, strict=True):
        rows.add(row, -1.0, -np.inf, portion)
        rows.add(row, 1.0, portion, np.inf)
    rows.add(np.ones(problem.patterns.points), 0.0, 1.0, 1.0)
    expected = linear_program(problem, np.zeros(problem.patterns.points), 1.0, rows)
    iterate = interior.solution(smallest_epsilon(problem))
    found = certificate.least_epsilon(problem, iterate.multipliers)
    assert found == pytest.approx(expected, abs=1e-6)
    assert found <= expected + 1e-9


@pytest.mark.parametrize("ratio", [False, True], ids=["accuracy", "recall"])
@pytest.mark.parametrize("seed", range(3))
def test_the_range_of_an_indicator_is_that_of_highs(seed, ratio):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, 200, neurons=4, sizes=4, epsilon=0.04)
    points = problem.patterns.points
    denominator = (rng.random(points) < 0.4).astype(float) if ratio else np.ones(points)
    numerator = denominator * (rng.random(points) < 0.8)
    for sign in (1.0, -1.0):
        rows = Rows(np.full(points, np.inf))
        target = problem.target
        for row, portion in zip(one_hot(problem), target.portions, strict=True):
            rows.add(row, -(portion + target.epsilon), -np.inf, 0.0)
            rows.add(row, -(portion - target.epsilon), 0.0, np.inf)
        rows.add(np.ones(points), -1.0, 0.0, 0.0)
        rows.add(denominator, 0.0, 1.0, 1.0)
        expected = linear_program(problem, sign * numerator, 0.0, rows)
        iterate = interior.solution(extreme(problem, numerator, denominator, sign))
        multipliers = iterate.multipliers
        proven = certificate.least_ratio(problem, sign * numerator, denominator, multipliers)
        assert proven == pytest.approx(expected, abs=1e-5)


def test_medium_problems_are_solved_to_proven_optimality():
    problem = random_problem(np.random.default_rng(5), 3000, neurons=8, sizes=6, epsilon=0.05, seen=1000)
    kept, proven = by_descent(problem)
    assert kept > 0
    assert proven


def test_swaps_meet_all_limits_and_keep_the_number():
    problem = random_problem(np.random.default_rng(3), 2000, neurons=6, sizes=6, epsilon=0.03, seen=500)
    best, _ = by_descent(problem)
    rng = np.random.default_rng(0)
    nothing = np.zeros(problem.patterns.points, np.int64)
    number = int(0.8 * best)
    found = repaired(problem, number, nothing, rng, seconds=600.0)
    assert found is not None
    assert found.sum() == number
    assert (found <= problem.multiplicity).all()
    assert similar(problem, found)
    assert repaired(problem, certificate.single_neuron_bound(problem) + 1, nothing, rng, seconds=0.2) is None


def test_patterns_multiply_like_the_matrix_they_stand_for():
    rng = np.random.default_rng(0)
    problem = random_problem(rng, 30)
    patterns, matrix = problem.patterns, one_hot(problem)
    weights, values = rng.random(patterns.points), rng.random(patterns.cells)
    assert np.allclose(patterns.totals(weights), matrix @ weights)
    assert np.allclose(patterns.prices(values), matrix.T @ values)
    assert np.allclose(patterns.gram(weights), (matrix * weights) @ matrix.T)


def test_distinct_patterns_are_those_numpy_finds():
    codes = np.random.default_rng(0).integers(0, 3, (4, 500))
    patterns, multiplicity, member = distinct(Patterns(codes, (3,) * 4))
    expected, counts = np.unique(codes.T, axis=0, return_counts=True)
    order = np.lexsort(patterns.codes[::-1])
    assert np.array_equal(patterns.codes.T[order], expected)
    assert np.array_equal(multiplicity[order], counts)
    assert np.array_equal(patterns.codes[:, member], codes)


def test_limits_are_exact_at_the_edge():
    # Of 10 kept, 7/10 operational and epsilon 0.1: 6 to 8, although 0.8 - 0.7 > 0.1 in floating point.
    low, high = PortionTarget(np.array([7, 3]), 10, 0.1).limits(10)
    assert (low.tolist(), high.tolist()) == ([6, 2], [8, 4])
