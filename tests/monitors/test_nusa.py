"""NuSA in the plane, against scipy's orthonormal basis, and as the code for OpenOOD scores."""

import numpy as np
import pytest
import torch
from scipy.linalg import orth

from assay import Trace
from assay.errors import InputError
from assay.monitors import NuSA


def trace_of(features, weight, bias):
    return Trace(features @ weight.T + bias, {"penultimate": features})


def test_the_share_that_the_weights_see_in_the_plane():
    # The weights lie along the first axis, so that (3, 4) is seen by three of five parts.
    weight, bias = torch.tensor([[2.0, 0.0], [-1.0, 0.0]]), torch.tensor([0.3, 0.0])
    monitor = NuSA().fit(
        trace_of(torch.randn(30, 2, generator=torch.Generator().manual_seed(0)), weight, bias)
    )
    unseen = trace_of(torch.tensor([[3.0, 4.0], [-7.0, 0.0], [0.0, 2.0], [0.0, 0.0]]), weight, bias)
    assert monitor.score(unseen).tolist() == pytest.approx([-0.6, -1.0, 0.0, 0.0], abs=1e-5)


@pytest.mark.parametrize("rank", [4, 2])
def test_scores_are_those_of_a_projection(rank):
    torch.manual_seed(0)
    weight, bias = torch.randn(4, rank) @ torch.randn(rank, 9), torch.randn(4)
    training, unseen = (trace_of(torch.randn(rows, 9) + 1, weight, bias) for rows in (300, 15))
    basis = orth(weight.T.double().numpy(), rcond=1e-5)
    assert basis.shape == (9, rank)
    features = unseen.layer("penultimate").double().numpy()
    expected = -np.linalg.norm(features @ basis, axis=1) / np.linalg.norm(features, axis=1)
    monitor = NuSA().fit(training)
    assert monitor.directions_.shape == (rank, 9)
    # The layer is recovered from features and logits in single precision.
    assert np.allclose(monitor.score(unseen), expected, atol=1e-5)


def test_scores_are_those_of_the_code_for_openood(published):
    assert published.match("NuSA", NuSA())


def test_a_layer_no_wider_than_its_weights_is_refused():
    torch.manual_seed(0)
    training = trace_of(torch.randn(50, 3), torch.randn(5, 3), torch.randn(5))
    with pytest.raises(InputError, match="nothing lies outside"):
        NuSA().fit(training)


@pytest.mark.parametrize("broken", [torch.nan, torch.inf, -torch.inf])
def test_a_broken_feature_never_passes_for_an_ordinary_one(broken):
    torch.manual_seed(0)
    training = trace_of(torch.randn(50, 6), torch.randn(3, 6), torch.randn(3))
    features = training.layer("penultimate")[:2].clone()
    features[0, 1] = broken
    unseen = Trace(training.logits[:2], {"penultimate": features})
    assert torch.isfinite(NuSA().fit(training).score(unseen)).tolist() == [False, True]
