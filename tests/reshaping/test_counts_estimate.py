"""Label shift fitted to histograms: closed forms, brute force, and trials whose truth is known."""

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from scipy.optimize import minimize

import assay
from assay import Bins, Histogram, Trace
from assay.errors import InputError, MissingLabelsError
from assay.reshaping.grouped_cells import GroupedCells
from assay.reshaping.mixture import fitted_mixture
from assay.reshaping.sensitivity import tilted
from assay.reshaping.simplex import shares_fit

BINS = Bins(width=1.0, last=11)
RECALLS = np.array([0.95, 0.6, 0.85])


def population(count, shares, seed, *, moved=0.0):
    """Three classes on four neurons, each with its own recall; `moved` shifts every value."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(3, count, p=np.array(shares) / sum(shares))
    centres = np.array([[2.0, 6.0, 2.0, 5.0], [6.0, 2.0, 4.0, 5.0], [4.0, 4.0, 7.0, 3.0]])
    values = np.clip(centres[labels] + 1.5 * rng.normal(size=(count, 4)) + moved, 0, 11.9)
    wrong = rng.random(count) >= RECALLS[labels]
    logits = np.eye(3)[np.where(wrong, (labels + 1) % 3, labels)]
    return Trace(
        torch.tensor(logits), {"penultimate": torch.tensor(values, dtype=torch.float32)}, torch.tensor(labels)
    )


@pytest.fixture(scope="module")
def scene():
    test, outside = population(3000, (4, 1, 4), 0), population(1200, (1, 4, 1), 1)
    return test, outside, Histogram.of(outside, BINS)


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), groups=st.integers(1, 6))
def test_shares_are_those_of_a_general_optimiser(seed, groups):
    rng = np.random.default_rng(seed)
    design, target = rng.normal(size=(12, groups)), 3 * rng.normal(size=12)
    shares, value = shares_fit(design, target)
    assert shares.min() >= 0
    assert shares.sum() == pytest.approx(1)
    assert value == pytest.approx(float(((design @ shares - target) ** 2).sum()), rel=1e-6)
    other = minimize(
        lambda q: ((design @ q - target) ** 2).sum(),
        np.full(groups, 1 / groups),
        bounds=[(0, 1)] * groups,
        constraints={"type": "eq", "fun": lambda q: q.sum() - 1},
        method="SLSQP",
    )
    assert value <= other.fun + 1e-6 * (1 + abs(other.fun))  # never worse than SLSQP, which stops early


def test_portions_that_are_a_mixture_give_back_its_shares(scene):
    """Counts that are exactly the mixture leave no residual, so any weights give its shares."""
    test, _, _ = scene
    cells = BINS.cells(test)
    grouped = GroupedCells.of(cells.numpy(), test.labels.numpy(), 3, 1000)
    parts = [Histogram.of_cells(cells[test.labels == label], BINS) for label in range(3)]
    twice = parts[0] + parts[1] + parts[1] + parts[2]
    mixture = fitted_mixture(grouped, twice)
    expected = np.array([1, 2, 1]) * [part.total for part in parts] / twice.total
    assert mixture.shares == pytest.approx(expected, abs=1e-6)
    assert mixture.misfit < 1e-4


def test_the_covariance_is_that_of_simulated_portions(scene):
    """Both samples drawn 4,000 times: variances within 10 % (three standard errors are 7 %)."""
    test = scene[0][:600]
    shares, inputs, rng = np.array([0.2, 0.5, 0.3]), 400, np.random.default_rng(0)
    grouped = GroupedCells.of(BINS.cells(test).numpy(), test.labels.numpy(), 3, inputs)
    drawn = []
    for _ in range(4000):
        again = np.stack(
            [grouped.indicators[rng.choice(rows, len(rows))].mean(0) for rows in grouped.rows], axis=1
        )
        seen = rng.multinomial(inputs, shares)
        live = (
            sum(
                grouped.indicators[rng.choice(rows, n)].sum(0)
                for rows, n in zip(grouped.rows, seen, strict=True)
            )
            / inputs
        )
        drawn.append(live - again @ shares)
    found = grouped.covariance(shares, inputs)
    imagined = (shares / (grouped.sizes * inputs) + shares**2 / grouped.sizes**2).sum()
    expected = np.cov(np.array(drawn).T)
    assert np.diagonal(found) - imagined == pytest.approx(np.diagonal(expected), rel=0.1)
    scale = np.sqrt(np.outer(np.diagonal(expected), np.diagonal(expected)))
    assert (np.abs(found - expected - imagined * np.eye(len(found))) / scale).max() < 0.1


def test_rare_neighbours_are_pooled_and_nothing_is_lost(scene):
    test, _, operational = scene
    grouped = GroupedCells.of(BINS.cells(test).numpy(), test.labels.numpy(), 3, 1200)
    per_cell = grouped.portions @ grouped.sizes
    assert per_cell.min() >= 20
    counts = grouped.counts(operational)
    for span in grouped.patterns.spans():
        assert counts[span].sum() == operational.total


def test_the_estimate_finds_the_truth_and_says_so(scene):
    test, outside, operational = scene
    estimate = assay.estimate_from_counts(test, operational)
    truth = float(outside.correct.double().mean())
    assert abs(estimate.unshaped - truth) > 0.1
    assert estimate.lower <= truth <= estimate.upper
    assert estimate.upper - estimate.lower < 0.12
    frequencies = np.bincount(outside.labels, minlength=3) / len(outside)
    assert np.abs(estimate.shares - frequencies).max() < 0.04
    assert not estimate.alarm
    assert "The counts fit that" in estimate.summary()
    assert estimate.class_frequencies()["operational"].sum() == pytest.approx(1)


def test_recall_is_that_of_the_test_set_with_the_chance_of_operation(scene):
    test, outside, operational = scene
    estimate = assay.estimate_from_counts(test, operational, assay.recall(1))
    ours = test.labels == 1
    assert estimate.value == pytest.approx(float(test.correct[ours].double().mean()))
    there = outside.labels == 1
    assert estimate.lower <= float(outside.correct[there].double().mean()) <= estimate.upper


def test_intervals_hold_the_realised_value_as_often_as_they_say():
    """40 pairs of samples: at 90 %, fewer than 31 hits have a chance below 1 in 100."""
    held, alarms = 0, 0
    for seed in range(40):
        test, outside = population(800, (3, 1, 2), 100 + seed), population(300, (1, 3, 2), 200 + seed)
        estimate = assay.estimate_from_counts(
            test, Histogram.of(outside, BINS), level=0.9, resamples=100, seed=seed
        )
        held += estimate.lower <= float(outside.correct.double().mean()) <= estimate.upper
        alarms += estimate.p_value < 0.1
    assert held >= 31
    assert alarms <= 9  # of 40 at 10 %: more has a chance below 1 in 100


def test_what_is_no_change_of_class_frequencies_raises_the_alarm(scene):
    outside = population(1200, (1, 4, 1), 1, moved=1.0)
    estimate = assay.estimate_from_counts(scene[0], Histogram.of(outside, BINS))
    assert estimate.alarm
    assert "cannot be relied on" in estimate.summary()
    assert "Cannot tell" in estimate.requirement(0.5)


def test_odds_are_tilted_by_gamma():
    rates = np.array([0.0, 0.5, 0.9, 1.0])
    for gamma in (0.5, 1.0, 3.0):
        found = tilted(rates, gamma)
        assert found[[0, 3]].tolist() == [0.0, 1.0]
        assert (1 - found[1:3]) / found[1:3] == pytest.approx(gamma * (1 - rates[1:3]) / rates[1:3])


def test_the_range_widens_with_gamma_and_breaks_where_it_says(scene):
    test, _, operational = scene
    estimate = assay.estimate_from_counts(test, operational, resamples=200)
    assert estimate.range_at(1.0) == (estimate.lower, estimate.upper)
    ends = np.array([estimate.range_at(gamma) for gamma in (1, 1.2, 1.5, 2, 5, 32)])
    assert (np.diff(ends[:, 0]) < 0).all()
    assert (np.diff(ends[:, 1]) > 0).all()
    # Closed form of the centre: sum of q(y) tilted(a(y)); chance adds about the same on every side.
    rates = np.array([float(test.correct[test.labels == y].double().mean()) for y in range(3)])
    centre = estimate.shares @ tilted(rates, 2.0)
    assert estimate.range_at(2.0)[0] == pytest.approx(centre - (estimate.value - estimate.lower), abs=0.01)
    gamma = estimate.breaking_gamma(0.5)
    assert estimate.range_at(gamma)[0] == pytest.approx(0.5, abs=1e-6)
    assert f"{gamma:.2f} times as likely" in estimate.requirement(0.5)
    assert estimate.breaking_gamma(0.99) == 1.0
    assert estimate.breaking_gamma(0.0) is None
    assert "even if" in estimate.requirement(0.0)
    assert "is below 0.99" in estimate.requirement(0.99)


def test_no_error_among_few_points_is_not_taken_for_none(scene):
    test, _, operational = scene
    perfect = Trace(torch.nn.functional.one_hot(test.labels).double(), test.features, test.labels)
    estimate = assay.estimate_from_counts(perfect, operational)
    assert estimate.value == 1.0
    assert 0.95 < estimate.range_at(2.0)[0] < estimate.lower < 1.0


def test_private_counts_give_wider_intervals_that_still_hold(scene):
    test, outside, operational = scene
    plain = assay.estimate_from_counts(test, operational, resamples=100)
    private = assay.estimate_from_counts(test, operational.private(1.0, seed=0), resamples=100)
    assert private.lower <= float(outside.correct.double().mean()) <= private.upper
    assert private.upper - private.lower > plain.upper - plain.lower
    assert not private.alarm


def test_the_same_seed_gives_the_same_answer_and_files_keep_it(scene, tmp_path):
    test, _, operational = scene
    first, again = (assay.estimate_from_counts(test, operational, resamples=60) for _ in range(2))
    assert first.facts() == again.facts()
    assay.save(first, tmp_path / "estimate")
    back = assay.load(tmp_path / "estimate")
    assert back.facts() == first.facts()
    assert back.to_frame().equals(first.to_frame())
    assert back.plot().axes[0].get_xlabel()


def test_what_cannot_be_estimated_is_refused(scene):
    test, _, operational = scene
    with pytest.raises(MissingLabelsError, match="with labels"):
        assay.estimate_from_counts(Trace(test.logits, test.features), operational)
    with pytest.raises(InputError, match="an empty one"):
        assay.estimate_from_counts(test, Histogram.of(test[:0], BINS))
    with pytest.raises(InputError, match="at least 2 resamples"):
        assay.estimate_from_counts(test, operational, resamples=1)
    free = assay.estimate_from_counts(test, operational, lambda labels, _: float(labels.double().mean()))
    with pytest.raises(InputError, match="errors within a class"):
        free.range_at(2.0)
