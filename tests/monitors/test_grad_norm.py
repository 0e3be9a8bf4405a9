"""GradNorm against the gradient it stands for."""

import pytest
import torch
from torch import nn

from assay import Trace
from assay.errors import InputError
from assay.monitors import GradNorm


@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_the_product_is_the_norm_of_the_gradient(temperature):
    torch.manual_seed(0)
    head = nn.Linear(7, 4)
    features = torch.randn(9, 7)
    trace = Trace(head(features).detach(), {"penultimate": features})
    expected = []
    for row in features:
        head.zero_grad()
        nn.functional.cross_entropy(head(row[None]) / temperature, torch.full((1, 4), 0.25)).backward()
        expected.append(-head.weight.grad.abs().sum().double())
    scores = GradNorm(temperature=temperature).fit(trace).score(trace)
    assert torch.allclose(scores, torch.stack(expected), rtol=1e-5)


def test_scores_are_those_of_pytorch_ood(published):
    assert published.match("GradNorm", GradNorm())


def test_a_temperature_of_zero_is_refused():
    with pytest.raises(InputError, match="expected a positive temperature"):
        GradNorm(temperature=0.0)
