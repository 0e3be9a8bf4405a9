"""Measures against scikit-learn, and intervals against what they promise."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics

from assay.benchmark.measures import (
    bootstrap_intervals,
    counted_measures,
    fpr_at_tpr,
    multiclass_mcc,
    multiclass_mcc_interval,
    outcome_counts,
    score_auroc,
)
from assay.benchmark.oracle import specific_outcome


def counts_of(truth, alarm):
    nothing = np.zeros_like(truth)
    return outcome_counts(specific_outcome(truth, nothing, nothing, alarm))


@pytest.mark.filterwarnings("ignore:A single label was found")
@settings(max_examples=30)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=2, max_size=40))
def test_counted_measures_agree_with_scikit_learn(pairs):
    truth, alarm = (np.array(column) for column in zip(*pairs, strict=True))
    found = counted_measures(counts_of(truth, alarm))
    options = {"zero_division": 0.0}
    assert found["mcc"] == pytest.approx(metrics.matthews_corrcoef(truth, alarm), abs=1e-12)
    assert found["precision"] == pytest.approx(metrics.precision_score(truth, alarm, **options))
    assert found["recall"] == pytest.approx(metrics.recall_score(truth, alarm, **options))
    assert found["f1"] == pytest.approx(metrics.f1_score(truth, alarm, **options))
    assert found["micro_f1"] == pytest.approx(metrics.f1_score(truth, alarm, average="micro"))
    expected = metrics.f1_score(truth, alarm, average="weighted", **options)
    assert found["weighted_f1"] == pytest.approx(expected)
    assert found["fpr"] == pytest.approx(alarm[~truth].mean() if (~truth).any() else 0)
    assert found["fnr"] == pytest.approx((~alarm[truth]).mean() if truth.any() else 0)


def test_the_papers_micro_f1_is_the_weighted_one():
    """Table II, GTSRB-BTSC, OOB: MCC 0.23, FPR 0.61, FNR 0.11, Pr 0.24, Re 0.90, F1 0.52."""
    positives, negatives = 178.0, 822.0
    counts = np.array([0.89 * positives, 0.61 * negatives, 0.39 * negatives, 0.11 * positives])
    found = counted_measures(counts)
    # The paper prints two digits, so every input is off by up to 0.005.
    assert found["precision"] == pytest.approx(0.24, abs=0.01)
    assert found["mcc"] == pytest.approx(0.23, abs=0.02)
    assert found["weighted_f1"] == pytest.approx(0.52, abs=0.01)
    assert found["f1"] == pytest.approx(0.38, abs=0.01)
    assert found["micro_f1"] == pytest.approx(0.48, abs=0.01)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 6)), min_size=2, max_size=40))
def test_auroc_agrees_with_scikit_learn_ties_included(pairs):
    truth, scores = np.array([t for t, _ in pairs]), np.array([float(s) for _, s in pairs])
    area, low, high = score_auroc(truth, scores, 0.95)
    if truth.all() or not truth.any():
        assert np.isnan(area)
        return
    assert area == pytest.approx(metrics.roc_auc_score(truth, scores))
    assert np.isnan(low) or 0 <= low <= area <= high <= 1
    curve = metrics.roc_curve(truth, scores, drop_intermediate=False)
    assert fpr_at_tpr(truth, scores) == pytest.approx(curve[0][curve[1] >= 0.95 - 1e-9].min())


def test_a_score_that_is_not_finite_ranks_above_all_others():
    truth = np.array([True, False, False])
    for odd in (np.nan, np.inf, -np.inf):
        assert score_auroc(truth, np.array([odd, 1.0, 2.0]), 0.95)[0] == 1.0


def test_delong_intervals_cover_the_true_area_as_often_as_they_say():
    generator, hits = np.random.default_rng(0), 0
    # Normal scores one apart: the true area is Phi(1 / sqrt 2).
    for _ in range(400):
        truth = generator.random(150) < 0.4
        _, low, high = score_auroc(truth, generator.normal(size=150) + truth, 0.9)
        hits += low <= 0.7602499 <= high
    # Binomial standard error 0.015.
    assert hits / 400 == pytest.approx(0.9, abs=0.05)


def test_bootstrap_intervals_are_those_of_drawing_rows():
    generator = np.random.default_rng(1)
    truth = generator.random(300) < 0.5
    alarm = np.where(generator.random(300) < 0.8, truth, ~truth)
    found = bootstrap_intervals(counts_of(truth, alarm), 0.9, 4000, 2)
    drawn = []
    for _ in range(4000):
        rows = generator.integers(0, 300, 300)
        drawn.append(counted_measures(counts_of(truth[rows], alarm[rows])))
    for name in ("mcc", "fpr", "fnr", "precision", "recall", "f1", "weighted_f1"):
        values = np.array([float(one[name]) for one in drawn])
        # Quantiles of 4,000 draws of spread 0.03 have a standard error of about 0.001.
        assert found[name] == pytest.approx(tuple(np.quantile(values, [0.05, 0.95])), abs=0.006), name


@pytest.mark.filterwarnings("ignore:A single label was found")
@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(-1, 4), st.integers(-1, 4)), min_size=1, max_size=30))
def test_multiclass_mcc_agrees_with_scikit_learn(pairs):
    labels, answers = (np.array(column) for column in zip(*pairs, strict=True))
    assert multiclass_mcc(labels, answers) == pytest.approx(
        metrics.matthews_corrcoef(labels, answers), abs=1e-9
    )


def test_the_interval_of_multiclass_mcc_is_that_of_drawing_rows():
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 4, 400)
    answers = np.where(generator.random(400) < 0.6, labels, generator.integers(-1, 4, 400))
    rows = generator.integers(0, 400, (2000, 400))
    drawn = [metrics.matthews_corrcoef(labels[part], answers[part]) for part in rows]
    settings_ = {"seed": 0, "level": 0.9, "resamples": 2000}
    low, high = multiclass_mcc_interval(labels, answers, settings_)
    # A quantile of 2,000 draws has a standard error of about 0.0014 here, and there are two of them.
    assert (low, high) == pytest.approx(tuple(np.quantile(drawn, [0.05, 0.95])), abs=0.006)
    assert low < multiclass_mcc(labels, answers) < high
