"""ASH by hand, on rows with ties and zeros, and as pytorch-ood scores."""

import math

import pytest
import torch

from assay import Trace
from assay.errors import InputError
from assay.monitors import ASH

WEIGHT = torch.tensor([[1.0, -0.5, 0.25, 2.0], [0.5, 1.0, -1.0, 0.0]])
BIAS = torch.tensor([0.5, -1.0])


def trace_of(features):
    return Trace(features @ WEIGHT.T + BIAS, {"penultimate": features})


def energy(*features):
    """Of what the last layer makes of these features."""
    return -torch.logsumexp(torch.tensor(features).double() @ WEIGHT.T.double() + BIAS, dim=0).item()


@pytest.fixture
def training():
    return trace_of(torch.rand(60, 4, generator=torch.Generator().manual_seed(0)))


def scored(training, variant, percentile, *features):
    monitor = ASH(variant=variant, percentile=percentile).fit(training)
    assert monitor.remedy_ == ""
    return monitor.score(trace_of(torch.tensor([features]))).item()


@pytest.mark.parametrize(
    ("variant", "shaped"),
    [
        ("P", (3.0, 0.0, 0.0, 4.0)),
        ("B", (5.0, 0.0, 0.0, 5.0)),
        ("S", (3.0 * math.exp(10 / 7), 0.0, 0.0, 4.0 * math.exp(10 / 7))),
    ],
)
def test_half_of_the_features_by_hand(training, variant, shaped):
    # The layer is recovered from features and logits in single precision.
    assert scored(training, variant, 50, 3.0, 2.0, 1.0, 4.0) == pytest.approx(energy(*shaped), rel=1e-5)


@pytest.mark.parametrize("variant", ["P", "B", "S"])
def test_a_row_of_zeros_is_judged_by_the_bias(training, variant):
    assert scored(training, variant, 50, 0.0, 0.0, 0.0, 0.0) == pytest.approx(
        energy(0.0, 0.0, 0.0, 0.0), abs=1e-5
    )


def test_binarising_gives_nothing_to_silent_units(training):
    # Three are to be kept and one is active: the sum of 6 stays with it.
    assert scored(training, "B", 25, 0.0, 6.0, 0.0, 0.0) == pytest.approx(
        energy(0.0, 6.0, 0.0, 0.0), abs=1e-5
    )


def test_ties_are_all_kept(training):
    assert scored(training, "P", 75, 2.0, 2.0, 1.0, 0.0) == pytest.approx(
        energy(2.0, 2.0, 0.0, 0.0), abs=1e-5
    )


def test_at_least_one_feature_is_kept(training):
    assert scored(training, "P", 99, 2.0, 3.0, 1.0, 0.0) == pytest.approx(
        energy(0.0, 3.0, 0.0, 0.0), abs=1e-5
    )


@pytest.mark.parametrize(("variant", "percentile"), [("P", 60), ("B", 65), ("S", 90)])
def test_scores_are_those_of_pytorch_ood(published, variant, percentile):
    assert published.match(f"ASH-{variant}", ASH(variant=variant, percentile=percentile))


@pytest.mark.parametrize("variant", ["P", "B", "S"])
@pytest.mark.parametrize("broken", [torch.nan, torch.inf, -torch.inf])
def test_a_broken_feature_never_passes_for_an_ordinary_one(training, variant, broken):
    features = torch.rand(2, 4)
    features[0, 1] = broken
    unseen = Trace(torch.zeros(2, 2), {"penultimate": features})
    assert torch.isfinite(ASH(variant=variant).fit(training).score(unseen)).tolist() == [False, True]


def test_negative_features_are_named(training):
    shifted = trace_of(training.layer("penultimate") - 0.5)
    assert "ASH is made for layers that are never negative" in ASH().fit(shifted).remedy_


@pytest.mark.parametrize("arguments", [{"variant": "Q"}, {"percentile": 100}, {"percentile": -1}])
def test_arguments_out_of_range_are_refused(arguments):
    with pytest.raises(InputError, match=r"expected (variant|a percentile)"):
        ASH(**arguments)
