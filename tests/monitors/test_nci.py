"""NCI against its definition with the weights it does without, and as pytorch-ood scores."""

import pytest
import torch

from assay import Trace
from assay.errors import InputError
from assay.monitors import NCI


def trace_of(features, weight, bias):
    return Trace(features @ weight.T + bias, {"penultimate": features})


@pytest.mark.parametrize("rows", [200, 3])  # more rows than features, and fewer
@pytest.mark.parametrize("norm_weight", [0.0, 0.2])
def test_the_product_with_the_weights_follows_from_the_logits(rows, norm_weight):
    torch.manual_seed(0)
    weight, bias = torch.randn(4, 6), torch.randn(4)
    training, unseen = (trace_of(torch.randn(count, 6) + 1, weight, bias) for count in (rows, 15))
    features = unseen.layer("penultimate").double()
    centred = features - training.layer("penultimate").double().mean(dim=0)
    along = (weight[unseen.predictions].double() * centred).sum(dim=1) / centred.norm(dim=1)
    expected = -along - norm_weight * features.abs().sum(dim=1)
    scores = NCI(norm_weight=norm_weight).fit(training).score(unseen)
    assert torch.allclose(scores, expected, atol=1e-5)  # logits are in single precision


def test_scores_are_those_of_pytorch_ood(published):
    assert published.match("NCI", NCI(norm_weight=1e-4))


def test_a_negative_weight_is_refused():
    with pytest.raises(InputError, match="expected a norm_weight"):
        NCI(norm_weight=-1.0)
