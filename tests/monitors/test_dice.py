"""DICE against its definition and as pytorch-ood scores."""

import numpy as np
import pytest
import torch

from assay import Trace
from assay.errors import InputError
from assay.monitors import DICE


def layer(seed=0, classes=3, size=8):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(classes, size, generator=generator), torch.randn(classes, generator=generator)


def trace_of(rows, seed, weight, bias):
    features = torch.rand(rows, weight.shape[1], generator=torch.Generator().manual_seed(seed))
    return Trace(features @ weight.T + bias, {"penultimate": features})


@pytest.mark.parametrize("percentile", [0, 37, 90])
def test_only_weights_that_contribute_most_are_used(percentile):
    weight, bias = layer()
    training, unseen = trace_of(3000, 1, weight, bias), trace_of(20, 2, weight, bias)
    contribution = weight.numpy() * training.layer("penultimate").double().numpy().mean(axis=0)
    mask = contribution > np.percentile(contribution, percentile)
    masked = unseen.layer("penultimate").double() @ (weight * torch.from_numpy(mask)).double().T + bias
    monitor = DICE(percentile=percentile).fit(training)
    # The layer is recovered from features and logits in single precision.
    assert torch.allclose(monitor.score(unseen), -torch.logsumexp(masked, dim=1), atol=1e-5)
    assert ((monitor.weight_ != 0).numpy() == mask).all()


def test_a_layer_of_four_weights_by_hand():
    weight, bias = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([1.0, 2.0])
    features = torch.tensor([[1.0, 10.0], [2.0, 10.0], [0.0, 10.0], [1.0, 12.0], [1.0, 8.0]])
    training = Trace(features @ weight.T + bias, {"penultimate": features})
    # The mean feature is (1, 10), the contributions 1, 20, 3 and 40, their median 11.5.
    monitor = DICE(percentile=50).fit(training)
    unseen = Trace(torch.zeros(1, 2), {"penultimate": torch.tensor([[7.0, 0.5]])})
    assert monitor.score(unseen).item() == pytest.approx(-np.log(np.exp(2) + np.exp(4)), abs=1e-5)


def test_scores_are_those_of_pytorch_ood(published):
    assert published.match("DICE", DICE(percentile=90))


def test_units_that_are_never_active_are_named():
    weight, bias = layer()
    weight[:, 2] = 0
    training = trace_of(300, 1, weight, bias)
    training.layer("penultimate")[:, 2] = 0
    assert "7 of 8 directions" in DICE().fit(training).remedy_


def test_a_percentile_out_of_range_is_refused():
    with pytest.raises(InputError, match="expected a percentile"):
        DICE(percentile=100)
