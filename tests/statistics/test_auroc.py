"""AUROC against scikit-learn, its interval against a simulation."""

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

from assay.statistics import auroc


def test_auroc_agrees_with_scikit_learn():
    generator = np.random.default_rng(0)
    known, unknown = generator.integers(0, 9, 80).astype(float), generator.integers(3, 12, 50).astype(float)
    truth = np.repeat([0, 1], [80, 50])
    assert auroc(known, unknown).value == pytest.approx(
        roc_auc_score(truth, np.concatenate([known, unknown]))
    )


def test_its_interval_is_as_wide_as_areas_of_new_data_vary():
    generator = np.random.default_rng(1)
    found = [auroc(generator.normal(size=60), generator.normal(1.0, size=40), 0.6827) for _ in range(300)]
    values = np.array([area.value for area in found])
    assert values.mean() == pytest.approx(norm.cdf(1 / np.sqrt(2)), abs=0.01)
    reach = np.mean([(area.upper - area.lower) / 2 for area in found])
    assert reach == pytest.approx(values.std(), rel=0.15)  # a spread of 300 draws is known to 4 %


def test_nothing_to_compare_has_no_area_and_one_row_no_interval():
    nothing, one, two = np.zeros(0), np.zeros(1), np.zeros(2)
    assert np.isnan(auroc(nothing, two)).all()
    assert np.isnan(auroc(two, nothing)).all()
    area = auroc(one, two)
    assert area.value == 0.5
    assert np.isnan([area.lower, area.upper]).all()
