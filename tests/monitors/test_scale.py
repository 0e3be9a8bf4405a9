"""SCALE by hand and as pytorch-ood scores."""

import math

import pytest
import torch

from assay import Trace
from assay.errors import InputError
from assay.monitors import SCALE

WEIGHT = torch.tensor([[1.0, -0.5, 0.25, 2.0], [0.5, 1.0, -1.0, 0.0]])
BIAS = torch.tensor([0.5, -1.0])


def trace_of(features):
    return Trace(features @ WEIGHT.T + BIAS, {"penultimate": features})


@pytest.fixture
def training():
    return trace_of(torch.rand(60, 4, generator=torch.Generator().manual_seed(0)))


def energy(features):
    return -torch.logsumexp(features.double() @ WEIGHT.T.double() + BIAS, dim=1)


def test_features_are_scaled_by_what_the_strongest_have_of_the_whole(training):
    unseen = trace_of(torch.tensor([[3.0, 2.0, 1.0, 4.0], [1.0, 1.0, 1.0, 1.0]]))
    monitor = SCALE(percentile=50).fit(training)
    scales = torch.tensor([math.exp(10 / 7), math.exp(2)])
    expected = energy(unseen.layer("penultimate") * scales[:, None])
    # The bias is recovered from features and logits in single precision.
    assert torch.allclose(monitor.score(unseen), expected, rtol=1e-5)
    assert monitor.bias_.tolist() == pytest.approx(BIAS.tolist(), abs=1e-6)
    assert monitor.remedy_ == ""


def test_a_row_of_zeros_keeps_its_energy(training):
    zero = torch.zeros(1, 4)
    assert torch.allclose(SCALE().fit(training).score(trace_of(zero)), energy(zero), atol=1e-5)


def test_scores_are_those_of_pytorch_ood(published):
    assert published.match("SCALE", SCALE(percentile=85))


@pytest.mark.parametrize("broken", [torch.nan, torch.inf, -torch.inf])
def test_a_broken_feature_never_passes_for_an_ordinary_one(training, broken):
    features = torch.rand(2, 4)
    features[0, 1] = broken
    unseen = Trace(torch.zeros(2, 2), {"penultimate": features})
    assert torch.isfinite(SCALE().fit(training).score(unseen)).tolist() == [False, True]


def test_negative_features_are_named(training):
    shifted = trace_of(training.layer("penultimate") - 0.5)
    assert "SCALE is made for layers that are never negative" in SCALE().fit(shifted).remedy_


def test_a_percentile_out_of_range_is_refused():
    with pytest.raises(InputError, match="expected a percentile"):
        SCALE(percentile=100)
