"""The last layer and what goes into it; monitors that need it say where it is not there."""

import pytest
import torch

from assay import Trace
from assay.errors import InputError
from assay.monitors import ASH, DICE, FDBD, SCALE, ReAct
from assay.monitors.parts.last_layer import LastLayerFit

READERS = [ASH, DICE, FDBD, SCALE, ReAct]
WEIGHT = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
BIAS = torch.tensor([0.5, -1.0, 2.0])


def trace_of(rows, dead=()):
    features = torch.rand(rows, 5, generator=torch.Generator().manual_seed(1))
    features[:, list(dead)] = 0.0
    return Trace(features @ WEIGHT.T + BIAS, {"penultimate": features})


def test_layer_mean_and_smallest_value_of_a_stream():
    trace = trace_of(3000)
    last = LastLayerFit.of(iter([trace[:700], trace[700:]]), "penultimate", 5, 3).last_layer()
    features = trace.layer("penultimate")
    assert torch.allclose(last.weight, WEIGHT.double(), atol=1e-5)
    assert torch.allclose(last.bias, BIAS.double(), atol=1e-5)
    assert torch.allclose(last.mean, features.double().mean(dim=0), atol=1e-6)
    assert last.smallest == float(features.min())
    assert last.undetermined == ""
    assert last.negative("X") == ""


@pytest.mark.parametrize("cls", READERS)
def test_what_is_not_known_is_said(cls):
    assert "3 of 5 directions" in cls().fit(trace_of(300, dead=[1, 4])).remedy_


@pytest.mark.parametrize("cls", READERS)
def test_a_layer_that_does_not_feed_the_logits_is_refused(cls):
    trace = trace_of(300)
    with pytest.raises(InputError, match="determine the logits linearly"):
        cls().fit(Trace(trace.logits.square(), trace.features))


@pytest.mark.parametrize("cls", READERS)
def test_too_few_rows_to_recover_the_layer_are_refused(cls):
    with pytest.raises(InputError, match="more rows than the 5 features"):
        cls().fit(trace_of(6))
