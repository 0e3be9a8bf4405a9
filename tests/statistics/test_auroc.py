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


def clustered(generator, inputs, rows, shift):
    """Scores of several rows per input, most of which an input's rows share, and the input of each."""
    sources = np.repeat(np.arange(inputs), rows)
    scores = shift + generator.normal(size=inputs)[sources] + 0.5 * generator.normal(size=len(sources))
    return scores, sources


def test_rows_of_one_input_count_as_alike():
    generator = np.random.default_rng(2)
    found, naive = [], []
    for _ in range(200):
        known, of_known = clustered(generator, 40, 12, 0.0)
        unknown, of_unknown = clustered(generator, 30, 12, 1.0)
        found.append(auroc(known, unknown, 0.6827, sources=(of_known, 40 + of_unknown)))
        naive.append(auroc(known, unknown, 0.6827))
    spread = np.std([area.value for area in found])
    reach, too_short = (
        np.mean([(area.upper - area.lower) / 2 for area in areas]) for areas in (found, naive)
    )
    assert reach == pytest.approx(spread, rel=0.15)  # a spread of 200 draws is known to 5 %
    assert too_short < 0.5 * spread


def test_inputs_with_rows_of_both_kinds_are_taken_into_account():
    """Within an input the common part of the scores cancels, so the area varies less."""
    generator = np.random.default_rng(3)
    found = []
    for _ in range(200):
        own = np.repeat(np.arange(50), 6)
        common = 2 * generator.normal(size=50)[own]
        known, unknown = common + generator.normal(size=300), common + 1 + generator.normal(size=300)
        found.append(auroc(known, unknown, 0.6827, sources=(own, own)))
    reach = np.mean([(area.upper - area.lower) / 2 for area in found])
    assert reach == pytest.approx(np.std([area.value for area in found]), rel=0.15)


def test_inputs_with_a_row_each_give_the_interval_of_delong():
    generator = np.random.default_rng(4)
    known, unknown = generator.normal(size=30), generator.normal(1.0, size=20)
    alone = auroc(known, unknown, sources=(np.arange(30), np.arange(30, 50)))
    assert alone == pytest.approx(auroc(known, unknown))
    one = auroc(known, unknown, sources=(np.zeros(30, int), np.arange(1, 21)))
    assert np.isnan([one.lower, one.upper]).all()
