"""Covariance estimates agree with scikit-learn, and can always be inverted."""

import numpy as np
import pytest
import sklearn.covariance as sk
import torch

from assay.monitors.parts.covariance import ledoit_wolf_shrinkage, oas_shrinkage, precision, shrunk, whitening
from assay.monitors.parts.moments import ClassMoments


def rows(count, size, seed=0):
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(size, size, generator=generator, dtype=torch.float64)
    return torch.randn(count, size, generator=generator, dtype=torch.float64) @ mixing


@pytest.mark.parametrize(("count", "size"), [(40, 5), (5, 8), (200, 30), (10, 2)])
def test_shrinkage_is_that_of_scikit_learn(count, size):
    values = rows(count, size)
    covariance = values.T @ values / count
    fourth = float(values.square().sum(dim=1).square().sum())
    expected_oas = sk.OAS(assume_centered=True).fit(values.numpy())
    assert oas_shrinkage(covariance, count) == pytest.approx(expected_oas.shrinkage_, rel=1e-9)
    expected, shrinkage = sk.ledoit_wolf(values.numpy(), assume_centered=True)
    assert ledoit_wolf_shrinkage(covariance, count, fourth) == pytest.approx(shrinkage, rel=1e-9, abs=1e-12)
    assert np.allclose(shrunk(covariance, shrinkage), expected)


def test_the_factor_whitens():
    values = rows(300, 4)
    factor, remedy = whitening(values.T @ values, 300, "empirical", None)
    assert remedy == ""
    assert np.allclose(np.cov((values @ factor.T).T, bias=True), np.eye(4), atol=0.1)
    white = factor @ (values.T @ values / 300) @ factor.T
    assert np.allclose(white, np.eye(4), atol=1e-10)


@pytest.mark.parametrize(
    "values",
    [rows(5, 8), torch.cat([rows(50, 3), torch.full((50, 1), 0.0)], dim=1), rows(50, 3)[:, [0, 1, 2, 0]]],
    ids=["more dimensions than rows", "a constant feature", "a repeated feature"],
)
@pytest.mark.parametrize("estimator", ["empirical", "oas"])
def test_a_singular_covariance_is_shrunk_by_oas_and_the_remedy_is_stated(values, estimator):
    values = values - values.mean(dim=0)
    factor, remedy = whitening(values.T @ values, len(values), estimator, None)
    inverse = (factor.T @ factor).numpy()
    expected = sk.OAS(assume_centered=True).fit(values.numpy()).covariance_
    assert np.allclose(inverse @ expected, np.eye(values.shape[1]), atol=1e-8)
    assert ("shrunk by OAS" in remedy) == (estimator == "empirical")


def test_no_spread_at_all_becomes_euclidean():
    factor, remedy = whitening(torch.zeros(3, 3, dtype=torch.float64), 4, "empirical", None)
    assert torch.equal(factor, torch.eye(3, dtype=torch.float64))
    assert "Euclidean" in remedy


@pytest.mark.parametrize("decay", [1.0, 1e-2, 1e-4])
@pytest.mark.parametrize("mixed", [False, True])
def test_single_precision_is_chosen_only_where_it_keeps_six_digits(decay, mixed):
    size = 40
    values = torch.randn(2000, size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values *= torch.logspace(0, np.log10(decay), size)
    if mixed:
        values = values @ torch.linalg.qr(rows(size, size))[0]
    values = values.float().double()
    moments = ClassMoments(1, size)
    moments.add(values, torch.zeros(len(values), dtype=torch.long))
    factor, _ = whitening(moments.scatter, 2000, "empirical", None)
    exact = (values @ factor.T).square().sum(dim=1)
    single = (values.float() @ factor.T.float()).square().sum(dim=1).double()
    error = ((single - exact) / exact).abs().max()
    chosen = precision(factor.T, moments.spread)
    assert chosen is (torch.float64 if mixed and decay < 1e-2 else torch.float32)
    assert chosen is torch.float64 or error < 5e-6
