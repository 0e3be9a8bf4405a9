"""Counts and a few labels: exact means, coverage whatever the shift, and wrong use."""

import numpy as np
import pytest
import torch

import assay
from assay import Bins, Histogram, Trace
from assay.accuracy import accuracy_from_counts_and_labels, accuracy_from_labels
from assay.errors import InputError, MissingLabelsError
from assay.reshaping.count_guesses import guesses_from_counts

BINS = Bins(width=1.0, last=11)
COUNTED, LABELLED = 400, 60
CENTRES = np.array([[2.0, 6.0, 2.0, 5.0], [6.0, 2.0, 4.0, 5.0], [4.0, 4.0, 7.0, 3.0]])


def population(count, shares, seed, *, recalls=(0.95, 0.3, 0.85), moved=0.0):
    """Three classes on four neurons, each with its own recall; `moved` shifts every value."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(3, count, p=np.array(shares) / sum(shares))
    values = np.clip(CENTRES[labels] + 1.5 * rng.normal(size=(count, 4)) + moved, 0, 11.9)
    wrong = rng.random(count) >= np.array(recalls)[labels]
    logits = 5.0 * np.eye(3)[np.where(wrong, (labels + 1) % 3, labels)]
    features = {"penultimate": torch.tensor(values, dtype=torch.float32)}
    return Trace(torch.tensor(logits), features, torch.tensor(labels))


@pytest.fixture(scope="module")
def scene():
    test, outside = population(2000, (1, 1, 1), 0), population(COUNTED, (1, 4, 1), 1)
    return test, outside, Histogram.of(outside, BINS)


def test_the_mean_guess_from_counts_is_that_of_all_inputs(scene):
    """Exactly, even where guesses leave [0, 1]: only so do labels correct what is wrong with them."""
    test, outside, operational = scene
    for shares in (np.array([1, 4, 1]) / 6, np.array([0.0, 1.0, 0.0])):
        guesses = guesses_from_counts(test, operational, outside, shares)
        assert guesses.labelled.mean() == pytest.approx(guesses.mean, abs=1e-12)
    some = guesses_from_counts(test, operational, outside[:9], shares)
    assert some.mean == guesses.mean
    assert some.labelled == pytest.approx(guesses.labelled[:9], abs=1e-12)


def test_guesses_tell_right_from_wrong_and_shorten_the_interval(scene):
    test, outside, operational = scene
    found = accuracy_from_counts_and_labels(test, operational, outside[:LABELLED])
    assert found.power > 0.3
    assert found.expected == assay.estimate_from_counts(test, operational).value
    assert found.upper - found.lower < 0.9 * (found.alone[2] - found.alone[1])
    assert (found.labelled, found.rows) == (LABELLED, COUNTED)
    assert f"With {LABELLED} of {COUNTED} rows labelled" in found.summary()


@pytest.mark.parametrize(
    ("shift", "recalls", "moved"),
    [
        ("label shift", (0.95, 0.3, 0.85), 0.0),
        ("errors within classes, which counts do not show", (0.1, 0.5, 0.1), 0.0),
        ("errors and every value", (0.5, 0.2, 0.6), 1.5),
    ],
)
def test_the_interval_holds_whatever_the_shift(shift, recalls, moved, monkeypatch):
    monkeypatch.setattr("assay.accuracy.prediction_powered.DRAWS", 2000)
    held, wide, misled = 0, [], []
    for seed in range(60):
        test = population(600, (1, 1, 1), 100 + seed)
        outside = population(COUNTED, (1, 3, 2), 300 + seed, recalls=recalls, moved=moved)
        truth = float(outside.correct.double().mean())
        found = accuracy_from_counts_and_labels(
            test, Histogram.of(outside, BINS), outside[:LABELLED], resamples=100, level=0.9, seed=seed
        )
        held += found.lower <= truth <= found.upper
        wide.append((found.upper - found.lower) / (found.alone[2] - found.alone[1]))
        misled.append(np.isnan(found.expected) or abs(found.expected - truth) > 0.1)
    assert held >= 48  # of 60 at 90 %: fewer has a chance below 1 in 100
    if shift == "label shift":
        assert np.mean(misled) < 0.1
        assert np.mean(wide) < 0.9
    else:
        assert np.mean(misled) > 0.9  # counts alone are wrong, or raise the alarm
    assert np.mean(wide) < 1.2  # and what they wrongly lead to expect costs little


def test_an_alarm_means_that_nothing_is_expected(scene):
    outside = population(COUNTED, (1, 4, 1), 1, moved=2.0)
    operational = Histogram.of(outside, BINS)
    assert assay.estimate_from_counts(scene[0], operational).alarm
    found = accuracy_from_counts_and_labels(scene[0], operational, outside[:LABELLED])
    assert np.isnan(found.expected)


def test_without_guesses_the_labels_and_the_expectation_are_left(scene):
    """Predicted classes have no cells, and private counts no exact mean: power 0, as from equal guesses."""
    test, outside, operational = scene
    some = outside[:LABELLED]
    expected = assay.estimate_from_counts(test, operational).value
    found = accuracy_from_counts_and_labels(test, operational, (some.predictions, some.labels))
    plain = accuracy_from_labels(np.full(COUNTED, 0.5), np.arange(LABELLED), some.correct, expected=expected)
    assert (found.value, found.lower, found.upper) == (plain.value, plain.lower, plain.upper)
    assert found.power == 0.0
    assert accuracy_from_counts_and_labels(test, operational.private(1.0, seed=0), some).power == 0.0


def test_labels_may_come_beside_the_trace_and_with_probabilities(scene):
    test, outside, operational = scene
    some = outside[:LABELLED]
    bare = Trace(some.logits, some.features)
    found, again = (
        accuracy_from_counts_and_labels(test, operational, labelled)
        for labelled in (some, (bare, some.labels))
    )
    assert (found.value, found.lower, found.upper) == (again.value, again.lower, again.upper)
    chances = np.where(np.arange(LABELLED) < 20, 0.1, 0.2)
    weighted = accuracy_from_counts_and_labels(test, operational, some, probabilities=chances)
    right = some.correct.numpy()
    assert weighted.alone[0] == pytest.approx((right / chances).sum() / (1 / chances).sum())


def test_wrong_use_is_one_sentence(scene):
    test, outside, operational = scene
    some = outside[:LABELLED]

    def wrong(match, labelled=some, test=test, operational=operational, kind=InputError, **named):
        with pytest.raises(kind, match=match):
            accuracy_from_counts_and_labels(test, operational, labelled, **named)

    wrong("a Trace with labels, got one without", Trace(some.logits, some.features))
    wrong("a pair of Trace or predicted classes and labels, got Tensor", some.labels)
    wrong("a label for each of 60 inputs, got 59", (some, some.labels[1:]))
    wrong("labels from 0 to 2", (some, some.labels + 1))
    wrong("labels from 0 to 2", (some.predictions - 1, some.labels))
    wrong("1 to 400 labelled inputs", outside[:0])
    wrong("1 to 400 labelled inputs", test[:401])
    wrong("labelled inputs that this device counted", population(100, (1, 1, 1), 7, moved=4.0))
    wrong("60 probabilities", probabilities=[0.1])
    wrong("level", level=2.0)
    wrong("an empty one", operational=Histogram.of(test[:0], BINS))
    wrong("with labels to estimate from", test=Trace(test.logits, test.features), kind=MissingLabelsError)
