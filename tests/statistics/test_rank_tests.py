"""Rank tests against the textbook (Demsar 2006) and scipy."""

import numpy as np
import pytest
from scipy import stats

from assay.statistics import critical_difference, overall_p_value, pairwise_p_values

# Demsar 2006, Table 5: q of 0.05 and of 0.10, by the number of classifiers.
TEXTBOOK = {0.95: {2: 1.960, 3: 2.343, 4: 2.569, 10: 3.164}, 0.9: {2: 1.645, 3: 2.052, 4: 2.291, 10: 2.920}}


@pytest.mark.parametrize("level", TEXTBOOK)
def test_critical_differences_are_those_of_the_textbook(level):
    for treatments, q in TEXTBOOK[level].items():
        wanted = q * np.sqrt(treatments * (treatments + 1) / (6 * 30))
        assert critical_difference(30, treatments, level) == pytest.approx(wanted, abs=1e-3)


def test_nemenyi_finds_a_pair_different_where_its_ranks_are_a_critical_difference_apart():
    values = np.random.default_rng(0).normal(size=(25, 5)) + np.array([2.0, 1.0, 1.0, 0.5, 0.0])
    ranks = stats.rankdata(values, axis=1).mean(axis=0)
    apart = np.abs(ranks[:, None] - ranks) > critical_difference(25, 5, 0.9)
    assert np.array_equal(pairwise_p_values(values) < 0.1, apart)
    assert apart.any()
    assert not apart.all()
    assert overall_p_value(values) == pytest.approx(stats.friedmanchisquare(*values.T).pvalue)


def test_two_treatments_are_compared_by_signed_ranks():
    values = np.random.default_rng(1).normal(size=(12, 2)) + np.array([1.0, 0.0])
    wanted = stats.wilcoxon(values[:, 0] - values[:, 1]).pvalue
    assert overall_p_value(values) == pytest.approx(wanted)
    assert pairwise_p_values(values) == pytest.approx(np.array([[1.0, wanted], [wanted, 1.0]]))


@pytest.mark.parametrize("treatments", [2, 4])
def test_equal_treatments_are_alike(treatments):
    values = np.repeat(np.arange(6.0)[:, None], treatments, axis=1)
    assert overall_p_value(values) == 1
    assert pairwise_p_values(values) == pytest.approx(np.ones((treatments, treatments)))
