"""Importance weighting where the shift is a known change of proportions, and where only counts are known."""

import numpy as np
import pytest
import torch

import assay
from assay.accuracy import AccuracyEstimator, estimate_accuracy

NAME = "importance weighting (PAPE)"


def mixture(count, hard, seed, features=False):
    """Two kinds of rows, equally sure; the easy ones are right in 95 % and the hard ones in 50 %."""
    generator = np.random.default_rng(seed)
    kind = generator.uniform(size=count) < hard
    labels = generator.integers(3, size=count)
    right = generator.uniform(size=count) < np.where(kind, 0.5, 0.95)
    predicted = np.where(right, labels, (labels + 1) % 3)
    logits = 3.0 * np.eye(3)[predicted] + 0.2 * generator.normal(size=(count, 3))
    seen = {"penultimate": torch.from_numpy(kind[:, None] + 0.3 * generator.normal(size=(count, 4)))}
    return assay.Trace(torch.from_numpy(logits), seen if features else {}, torch.from_numpy(labels))


def test_a_change_of_proportions_is_seen_where_the_features_show_it():
    reference, operational = (mixture(2000, hard, seed, True) for hard, seed in ((0.2, 0), (0.7, 1)))
    result = estimate_accuracy(reference, operational)
    truth = float(operational.correct.double().mean())
    found = result[NAME]
    assert found.usable
    assert found.lower <= truth <= found.upper
    assert found.value == pytest.approx(truth, abs=0.05)
    # All rows are equally sure, so that confidence alone sees nothing.
    assert result["calibrated confidence (CBPE)"].value - truth > 0.15


def test_without_features_the_logits_have_to_show_it():
    reference, operational = (mixture(1000, hard, seed) for hard, seed in ((0.2, 0), (0.7, 1)))
    result = estimate_accuracy(reference, operational)
    assert result[NAME].value == pytest.approx(result["calibrated confidence (CBPE)"].value, abs=0.05)


def test_without_a_shift_the_weights_are_even():
    reference, operational = (mixture(1000, 0.3, seed, True) for seed in (0, 1))
    found = estimate_accuracy(reference, operational)[NAME]
    assert found.value == pytest.approx(float(operational.correct.double().mean()), abs=0.05)
    # Two samples of 1,000 rows at 80 %: 1.96 sqrt(0.13 (1 / 1000 + 1 / 1000)) = 0.032.
    assert (found.upper - found.lower) / 2 == pytest.approx(0.032, rel=0.4)


def test_rows_unlike_the_reference_are_not_trusted():
    reference, operational = mixture(500, 0.2, 0, True), mixture(500, 0.2, 1, True)
    far = assay.Trace(operational.logits, {"penultimate": operational.layer("penultimate") + 5.0})
    found = estimate_accuracy(reference, far)[NAME]
    assert "reference rows are like these" in found.note
    assert not found.usable


def test_counts_leave_it_out_and_say_why(tmp_path):
    reference, operational = mixture(300, 0.2, 0, True), mixture(200, 0.2, 1, True)
    estimator = AccuracyEstimator().fit(reference)
    assay.save(estimator, tmp_path / "estimator")
    for one in (estimator, assay.load(tmp_path / "estimator")):
        found = one.estimate(one.count(operational))[NAME]
        assert np.isnan(found.value)
        assert "all rows at once" in found.note
    few = estimate_accuracy(reference, operational[:3])[NAME]
    assert np.isnan(few.value)
    assert "at least 5 operational rows" in few.note
