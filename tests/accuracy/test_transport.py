"""Confidence optimal transport against the linear program and all assignments of a tiny set."""

from itertools import permutations

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

import assay
from assay.accuracy import AccuracyEstimator, estimate_accuracy
from assay.accuracy.methods import ThresholdedTransport, TransportedConfidence
from assay.accuracy.predictions import AccuracyReference, LabelledPredictions, Predictions


def transport(shares, together=100, temperature=1.0):
    fitted = {
        "shares_": np.array(shares),
        "rows_together_": together,
        "temperature_": temperature,
        "cut_": 0.5,
    }
    return TransportedConfidence.from_state(fitted)


def probabilities(count, classes, seed, scale=2.0):
    logits = scale * np.random.default_rng(seed).normal(size=(count, classes))
    return np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)


def test_the_assignment_is_the_best_of_all():
    rows = probabilities(6, 3, 0)
    labels = [0, 0, 0, 1, 1, 2]
    best = max(sum(rows[i, order[i]] for i in range(6)) for order in set(permutations(labels)))
    found = transport([1 / 2, 1 / 3, 1 / 6]).scores(Predictions(rows))
    assert found.sum() == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_the_cost_is_that_of_the_linear_program(temperature):
    """min <plan, |one-hot - p|_inf> over plans with these margins, as the papers state it."""
    shares, count = np.array([0.4, 0.3, 0.2, 0.1, 0.0]), 50
    rows = probabilities(count, 5, 1)
    calibrated = rows ** (1 / temperature)
    calibrated /= calibrated.sum(axis=1, keepdims=True)
    cost = np.abs(np.eye(5)[None] - calibrated[:, None]).max(axis=2)
    margins = np.vstack([np.kron(np.eye(count), np.ones(5)), np.kron(np.ones(count), np.eye(5))])
    found = linprog(cost.ravel(), A_eq=margins, b_eq=np.concatenate([np.ones(count) / count, shares]))
    scores = transport(shares, temperature=temperature).scores(Predictions(rows))
    assert 1 - scores.mean() == pytest.approx(found.fun, abs=1e-9)


def test_large_sets_go_through_windows_of_bounded_size():
    rows = probabilities(1000, 4, 2)
    method = transport([0.25] * 4)
    parts = [method.scores(Predictions(rows[k : k + 100])) for k in range(0, 1000, 100)]
    np.testing.assert_array_equal(method.scores(Predictions(rows)), np.concatenate(parts))
    assert len(method.scores(Predictions(rows[:270]))) == 270
    assert "at least 50 rows" in method.obstacle(Predictions(rows[:49]))


def blurred(count, seed, sharpness=2.0, favoured=0.0):
    """A calibrated classifier; `favoured` draws it towards class 0 although nothing speaks for it."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(4, size=count)
    logits = sharpness * (sharpness * np.eye(4)[labels] + generator.normal(size=(count, 4)))
    logits[:, 0] += favoured
    return assay.Trace(torch.from_numpy(logits), labels=torch.from_numpy(labels))


def test_a_class_that_is_predicted_too_often_costs():
    """Average confidence does not fall when a network favours one class, transport does."""
    reference, operational = blurred(2000, 0), blurred(2000, 1, favoured=6.0)
    result = estimate_accuracy(reference, operational)
    truth = float(operational.correct.double().mean())
    plain = abs(result["average confidence"].value - truth)
    assert abs(result["optimal transport (COT)"].value - truth) < plain / 2
    assert abs(result["optimal transport, thresholded (COTT)"].value - truth) < plain / 2


def test_on_the_reference_the_threshold_splits_off_as_many_rows_as_are_wrong():
    known = LabelledPredictions.of(blurred(500, 2))
    method = ThresholdedTransport().fit(AccuracyReference(known, [], 100))
    assert method.shift_ == pytest.approx(0.0, abs=1e-9)
    value, _, _ = method.interval(method.sums(known.predictions), 500, 0.95)
    assert value == pytest.approx(known.correct.mean(), abs=1e-9)


def test_both_share_their_sums():
    estimator = AccuracyEstimator().fit(blurred(300, 3))
    counts = estimator.count(blurred(200, 4))
    assert "optimal transport (COT)" in counts.sums
    assert "optimal transport, thresholded (COTT)" not in counts.sums
    left_out = estimator.count(blurred(20, 5)).left_out
    assert set(left_out) == {"optimal transport (COT)", "optimal transport, thresholded (COTT)"}


def test_a_reference_without_errors_or_with_very_many_classes():
    perfect = LabelledPredictions.of(blurred(300, 6, sharpness=9.0))
    assert perfect.correct.all()
    assert TransportedConfidence().fit(AccuracyReference(perfect, [], 100)).temperature_ == 1.0
    labels = torch.arange(300) % 150
    many = LabelledPredictions.of(assay.Trace(torch.randn(300, 150), labels=labels))
    assert not TransportedConfidence.applies(AccuracyReference(many, [], 100))
