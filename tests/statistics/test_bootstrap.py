"""Resampling against the distributions it stands for."""

import numpy as np
import pytest
from scipy.stats import multinomial

from assay.statistics import bootstrap, poisson_counts, resampled_counts, resampled_means, resampled_sums


def test_means_of_drawn_rows_vary_as_theory_says(monkeypatch):
    values = np.random.default_rng(0).exponential(size=200)
    means = resampled_means(values, 20_000, seed=1)
    # Mean and spread of a bootstrap mean are those of the values, over sqrt n; 20,000 draws know them to 1 %.
    assert means.mean() == pytest.approx(values.mean(), rel=0.01)
    assert means.std() == pytest.approx(values.std() / np.sqrt(200), rel=0.02)
    monkeypatch.setattr(bootstrap, "_DRAWN_AT_A_TIME", 200 * 4_000)  # in five blocks
    assert np.array_equal(means, resampled_means(values, 20_000, seed=1))


def test_two_quantities_share_their_draws():
    one, other = np.arange(50.0), np.arange(50.0) ** 2
    both = resampled_means(one + 1j * other, 100, seed=3)
    assert both.real == pytest.approx(resampled_means(one, 100, seed=3))
    assert both.imag == pytest.approx(resampled_means(other, 100, seed=3))


@pytest.mark.parametrize("resampled", [resampled_counts, poisson_counts])
def test_counts_have_the_shares_and_the_spread_of_drawn_rows(resampled):
    counts = np.array([10.0, 60.0, 30.0, 0.0])
    draws = resampled(counts, 40_000, seed=0)
    shares = draws / draws.sum(axis=1, keepdims=True)
    assert shares.mean(axis=0) == pytest.approx(counts / 100, abs=0.002)
    wanted = multinomial(100, counts / 100).cov() / 100**2
    # Poisson draws have a total of their own, which changes the spread of shares by about 1 in 100.
    assert np.cov(shares.T) == pytest.approx(wanted, rel=0.05, abs=1e-5)


def test_sums_over_drawn_inputs_vary_as_those_of_new_inputs(monkeypatch):
    counts = np.random.default_rng(5).poisson(3.0, size=(60, 4)).astype(float)
    sums = resampled_sums(counts, 20_000, seed=6)
    assert sums.mean(axis=0) == pytest.approx(counts.sum(axis=0), rel=0.01)
    # The sum of n independent draws has n times the covariance of one; 20,000 draws know it to a few percent.
    assert np.cov(sums.T) == pytest.approx(60 * np.cov(counts.T, ddof=0), rel=0.05, abs=5)
    monkeypatch.setattr(bootstrap, "_DRAWN_AT_A_TIME", 60 * 4_000)  # in five blocks
    assert np.array_equal(sums, resampled_sums(counts, 20_000, seed=6))
