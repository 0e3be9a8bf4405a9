"""The accuracy from a few labels: closed forms, every sample of a tiny set, coverage by simulation."""

from itertools import combinations

import numpy as np
import pytest
import torch
from scipy.special import logit
from scipy.stats import beta, binom

import assay
from assay.accuracy import FewLabels, accuracy_from_labels, rows_to_label
from assay.accuracy.guesses import moved_to
from assay.accuracy.predictions import Predictions
from assay.errors import InputError

MANY = 10**6
"""Rows, next to which the labelled ones are few: no correction for a finite set."""


def test_without_guesses_the_limits_are_clopper_and_pearsons():
    rows, right = np.arange(50), np.arange(50) < 41
    found = accuracy_from_labels(np.full(MANY, 0.8), rows, right)
    assert found.power == 0.0
    assert found.value == pytest.approx(0.82, abs=1e-6)
    # 10,000 draws give a quantile at 2.5 % to within 0.004 at 3 sigma here.
    np.testing.assert_allclose(found.alone[1:], beta.ppf([0.025, 0.975], [41, 42], [10, 9]), atol=0.004)
    assert (found.lower, found.upper) == found.alone[1:]


def test_the_expected_accuracy_moves_error_from_one_end_to_the_other():
    rows, right = np.arange(50), np.arange(50) < 41
    limits = {tail: beta.ppf([tail, 1 - tail], [41, 42], [10, 9]) for tail in (0.045, 0.005)}

    def ends(expected):
        found = accuracy_from_labels(np.full(MANY, 0.5), rows, right, expected=expected)
        return found.lower, found.upper

    near, far = limits[0.045], limits[0.005]
    np.testing.assert_allclose(ends(0.8), near, atol=0.004)  # expected inside: both ends near
    np.testing.assert_allclose(ends(0.2), [far[0], near[1]], atol=0.008)
    np.testing.assert_allclose(ends(0.92), [near[0], 0.92], atol=0.004)  # not beyond what was expected
    np.testing.assert_allclose(ends(0.99), [near[0], far[1]], atol=0.008)


@pytest.mark.parametrize("expected", [0.1, 0.5, 0.9, 0.98])
def test_the_limits_hold_at_every_accuracy_whatever_was_expected(expected):
    """Without guesses the ends are those of beta distributions, so coverage is a sum over 51 outcomes."""
    counts = np.arange(51)
    drawn = [
        beta.ppf(tail, np.maximum(counts + one, 1e-9), np.maximum(51 - one - counts, 1e-9))
        for tail, one in ((0.045, 0), (0.005, 0), (0.955, 1), (0.995, 1))
    ]
    lower, low, upper, high = drawn
    uppers = np.where(expected <= upper, upper, np.minimum(expected, high))
    lowers = np.where(expected >= lower, lower, np.maximum(expected, low))
    for seen in (5, 30, 48):
        found = accuracy_from_labels(np.full(MANY, 0.5), np.arange(50), counts[:50] < seen, expected=expected)
        np.testing.assert_allclose([found.lower, found.upper], [lowers[seen], uppers[seen]], atol=0.012)
    truths = np.linspace(0.001, 0.999, 999)
    held = (lowers[:, None] <= truths) & (truths <= uppers[:, None])
    assert (binom.pmf(counts[:, None], 50, truths) * held).sum(axis=0).min() >= 0.95 - 1e-9


@pytest.mark.parametrize("weighted", [False, True])
def test_the_estimate_is_tuned_on_the_other_rows(weighted):
    """Against a loop that fits a line to all labelled rows but one."""
    generator = np.random.default_rng(0)
    guesses = generator.uniform(size=5000)
    rows = generator.choice(5000, 60, replace=False)
    right = (generator.uniform(size=60) < guesses[rows]).astype(float)
    chances = generator.uniform(0.009, 0.015, 60) if weighted else np.full(60, 60 / 5000)
    found = accuracy_from_labels(guesses, rows, right, probabilities=chances)
    slopes = []
    for place in range(60):
        others = np.arange(60) != place
        # polyfit squares its weights.
        slope, _ = np.polyfit(guesses[rows][others], right[others], 1, w=1 / chances[others])
        slopes.append(np.clip(slope, 0, 1))
    assert found.power == pytest.approx(np.mean(slopes))
    values = right - slopes * (guesses[rows] - guesses.mean())
    assert found.value == pytest.approx(np.average(values, weights=1 / chances))
    assert found.upper - found.lower < found.alone[2] - found.alone[1]


def test_guesses_are_moved_to_what_was_expected():
    guesses = np.array([0.0, 0.9, 0.99, 0.999, 1.0])
    for mean in (0.3, 0.5, 0.75):
        moved = moved_to(mean, guesses)
        assert moved.mean() == pytest.approx(mean, abs=1e-5)
        odds = logit(moved[1:4]) - logit(guesses[1:4])
        np.testing.assert_allclose(odds, odds[0], atol=1e-6)
    for mean in (0.0, 1.0):
        assert moved_to(mean, guesses).mean() == pytest.approx(mean, abs=1e-6)


def test_too_few_errors_leave_the_guesses_out():
    guesses = np.linspace(0, 1, MANY)
    rows = np.arange(0, MANY, MANY // 50)
    assert accuracy_from_labels(guesses, rows, np.arange(50) >= 4).power == 0.0
    assert accuracy_from_labels(guesses, rows, np.arange(50) >= 5).power > 0.0


def test_perfect_guesses_leave_what_was_not_seen():
    right = np.arange(1000) < 700
    rows = rows_to_label(assay.Trace(torch.randn(1000, 3)), 50, guesses=right.astype(float))
    found = accuracy_from_labels(right.astype(float), rows, right[rows.rows])
    assert found.power == 1.0
    assert found.value == pytest.approx(0.7)
    assert 0.02 < found.upper - found.lower < 0.5 * (found.alone[2] - found.alone[1])


def test_labels_of_all_rows_are_the_truth():
    right = np.arange(40) < 31
    found = accuracy_from_labels(np.full(40, 0.1), np.arange(40), right)
    assert (found.value, found.lower, found.upper) == pytest.approx((31 / 40,) * 3)


@pytest.mark.parametrize("guesses", [[0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2], [0.5] * 8])
def test_every_uniform_sample_of_every_small_set(guesses):
    """8 rows, 4 labelled: 256 sets of right rows and 70 samples of each, all listed."""
    samples = [np.array(places) for places in combinations(range(8), 4)]
    kept, errors = [], []
    answers = {}
    for pattern in range(256):
        right = np.array([pattern >> place & 1 for place in range(8)], float)
        hits = []
        for number, places in enumerate(samples):
            key = number, tuple(right[places])
            if key not in answers:
                found = accuracy_from_labels(guesses, places, right[places])
                answers[key] = found.value, found.lower, found.upper
            value, lower, upper = answers[key]
            hits.append(lower - 1e-9 <= right.mean() <= upper + 1e-9)
            errors.append(value - right.mean())
        kept.append(np.mean(hits))
    assert min(kept) > 0.9
    assert np.mean(kept) > 0.95
    assert np.mean(errors) == pytest.approx(0.0, abs=0.01)


N = 1000


def population(kind, accuracy, generator):
    """(right, guesses) of N rows."""
    spread = generator.beta(2 * accuracy, 2 * (1 - accuracy), N)
    if kind == "guesses are right":
        return generator.uniform(size=N) < spread, spread
    if kind == "guesses are useless":
        return generator.uniform(size=N) < accuracy, generator.beta(1.6, 0.4, N)
    if kind == "attacked: wrong and sure":
        return generator.uniform(size=N) < accuracy, generator.beta(0.97, 0.03, N)
    return generator.uniform(size=N) < spread, 1 - spread  # guesses are the wrong way round


@pytest.mark.parametrize(
    "kind", ["guesses are right", "guesses are useless", "attacked: wrong and sure", "the wrong way round"]
)
@pytest.mark.parametrize("by_doubt", [True, False])
def test_the_interval_holds_whatever_the_guesses(kind, by_doubt, monkeypatch):
    monkeypatch.setattr("assay.accuracy.prediction_powered.DRAWS", 2000)
    trace = assay.Trace(torch.zeros(N, 2))
    generator, hits, ratios = np.random.default_rng(1), [], []
    for accuracy in (0.02, 0.3, 0.7, 0.95):
        for _ in range(40):
            right, guesses = population(kind, accuracy, generator)
            seed = int(generator.integers(10**6))
            rows = rows_to_label(trace, 50, guesses=guesses, seed=seed)
            if not by_doubt:
                rows = generator.choice(N, 50, replace=False)
            expected = guesses.mean() if generator.integers(2) else None
            places = rows.rows if by_doubt else rows
            found = accuracy_from_labels(guesses, rows, right[places], expected=expected)
            hits.append(found.lower <= right.mean() <= found.upper)
            ratios.append((found.upper - found.lower) / (found.alone[2] - found.alone[1]))
    # 160 draws at 95 %: fewer than 144 has a chance of 1 in 500.
    assert sum(hits) >= 144
    if kind == "guesses are right":
        assert np.mean(ratios) < 0.92
    # A wrong expectation costs most near 0 and 1, where one end is all there is: a quarter.
    assert np.mean(ratios) < 1.15


def test_labels_come_in_the_forms_people_have():
    predictions = Predictions.of(torch.eye(3)[[0, 1, 2, 0, 1]])
    for drawn in ([0, 2], torch.tensor([0, 2])):
        few = FewLabels.of([0, 1], drawn, 5)
        assert few.probabilities is None
        assert few.correct(predictions).tolist() == [1.0, 0.0]
    drawn = rows_to_label(predictions.probabilities, 3)
    for form in (drawn, drawn.to_frame()):
        few = FewLabels.of(predictions.classes[drawn.rows], form, 5)
        np.testing.assert_array_equal(few.rows, drawn.rows)
        np.testing.assert_array_equal(few.probabilities, drawn.probabilities)
        assert few.correct(predictions).all()


def test_the_result_explains_itself(tmp_path):
    found = accuracy_from_labels(np.full(100, 0.9), np.arange(10), np.arange(10) < 8)
    assert "With 10 of 100 rows labelled" in found.summary()
    assert "expected" not in found.summary()
    expecting = accuracy_from_labels(np.full(100, 0.9), np.arange(10), np.arange(10) < 8, expected=0.7)
    assert "70.0% was expected without labels" in expecting.summary()
    assert expecting.plot().axes
    frame = found.to_frame()
    assert list(frame.columns) == ["from", "value", "lower", "upper"]
    assert frame["from"].tolist() == ["labels and guesses", "labels alone"]
    assert found.plot().axes
    assay.save(found, tmp_path / "found")
    assert assay.load(tmp_path / "found").upper == found.upper
    one = accuracy_from_labels(np.full(100, 0.9), [3], [1])
    assert one.lower < 0.2
    assert one.upper == pytest.approx(1.0)


def test_wrong_use_is_one_sentence():
    guesses, rows, right = np.full(20, 0.8), np.arange(12), np.ones(12)

    def wrong(match, guesses=guesses, rows=rows, right=right, **named):
        with pytest.raises(InputError, match=match):
            accuracy_from_labels(guesses, rows, right, **named)

    wrong("rows 0 to 19", rows=np.arange(12) + 15)
    wrong("a row twice", rows=[0] * 12)
    wrong("whole numbers", rows=[0.5] * 12)
    wrong("whole numbers", rows=[], right=[])
    wrong("one answer per labelled row", right=np.ones(11))
    wrong("right .1. or wrong .0.", right=np.full(12, 0.5))
    wrong("right .1. or wrong .0.", right=np.full(12, np.nan))
    wrong("above 0 and at most 1", probabilities=np.zeros(12))
    wrong("12 probabilities", probabilities=np.ones(3))
    wrong("inverses add up to about 20", probabilities=np.full(12, 1 / 20))
    wrong("guesses from 0 to 1", guesses=np.full(20, np.nan))
    wrong("one guess per operational row", guesses=0.5)
    wrong("between 0 and 1", level=95)
    wrong("from 0 to 1 as `expected`", expected=1.2)
    drawn = rows_to_label(torch.full((30, 2), 0.5), 5)
    wrong("drawn from 30", rows=drawn, right=np.ones(5))
    with pytest.raises(InputError, match="a label for each of 5 rows"):
        FewLabels.of([0, 1], drawn, 30)
    with pytest.raises(InputError, match="pass drawn="):
        FewLabels.of([1, 2, 3], None, 30)
    with pytest.raises(InputError, match="without probability"):
        FewLabels.of([1, 2], drawn.to_frame()[["row"]], 30)
    few = FewLabels.of([0, 1, 2, 3, 9], drawn, 30)
    with pytest.raises(InputError, match="labels from 0 to 1"):
        few.correct(Predictions.of(torch.full((30, 2), 0.5)))
