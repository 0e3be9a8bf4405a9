"""Rank correlation against scipy, exact permutations, and a simulation."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from assay.statistics import rank_correlation


def test_rank_correlation_agrees_with_scipy_and_its_interval_covers():
    generator = np.random.default_rng(0)
    first = generator.normal(size=12)
    second = first + generator.normal(size=12)
    found = rank_correlation(first, second)
    assert found.value == pytest.approx(spearmanr(first, second).statistic)
    # 10,000 permutations have a standard error of 0.004 here; scipy takes a t distribution instead.
    assert found.p_value == pytest.approx(spearmanr(first, second).pvalue, abs=0.03)
    assert found.lower < found.value < found.upper
    assert rank_correlation(first, second, level=0.5).lower > found.lower
    covered = []
    truth = 6 / np.pi * np.arcsin(0.6 / 2)  # Spearman's correlation of a normal pair with Pearson's 0.6
    for _ in range(100):
        pair = generator.multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], size=25)
        one = rank_correlation(*pair.T)
        covered.append(one.lower <= truth <= one.upper)
    assert np.mean(covered) >= 0.88  # three standard errors under 95 %


def test_four_pairs_in_perfect_order_are_not_called_certain():
    found = rank_correlation([1, 2, 3, 4], [10, 20, 30, 40])
    assert found.value == pytest.approx(1)
    assert found.p_value == pytest.approx(2 / 24)
    assert found.lower < 0.5
    assert np.isnan(rank_correlation([1, 2, 3], [1, 2, 3]).value)
    assert np.isnan(rank_correlation([1, 1, 1, 1], [1, 2, 3, 4]).value)
