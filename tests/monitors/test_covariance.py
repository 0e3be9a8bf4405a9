"""Covariance estimates agree with scikit-learn, and can always be inverted."""

import numpy as np
import pytest
import sklearn.covariance as sk
import torch

from assay.monitors.covariance import ledoit_wolf_shrinkage, oas_shrinkage, precision, shrunk, whitening


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


def test_precision_follows_the_conditioning():
    eye = torch.eye(4, dtype=torch.float64)
    assert precision(eye, spread=2.0) is torch.float32
    assert precision(eye * torch.tensor([1.0, 1.0, 1.0, 1e4]), spread=2.0) is torch.float64
