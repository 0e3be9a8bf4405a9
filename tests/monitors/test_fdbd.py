"""FDBD by plane geometry, by loops over classes, and as pytorch-ood scores."""

import pytest
import torch

from assay import Trace
from assay.monitors import FDBD, NCI


def trace_of(features, weight, bias):
    return Trace(features @ weight.T + bias, {"penultimate": features})


def test_the_distance_from_a_boundary_in_the_plane():
    # The classes meet where the coordinates are equal; (3, 0) is 3 / sqrt(2) from there.
    features = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    monitor = FDBD().fit(trace_of(features, torch.eye(2), torch.zeros(2)))
    unseen = trace_of(torch.tensor([[3.0, 0.0], [6.0, 0.0], [2.0, 2.0]]), torch.eye(2), torch.zeros(2))
    expected = [-(0.5**0.5), -(0.5**0.5), 0.0]  # in shares of the distance from the mean, which is zero
    assert monitor.score(unseen).tolist() == pytest.approx(expected, abs=1e-6)


def test_the_mean_over_boundaries_by_loops():
    torch.manual_seed(0)
    weight, bias = torch.randn(4, 6), torch.randn(4)
    training, unseen = (trace_of(torch.randn(rows, 6) + 1, weight, bias) for rows in (200, 15))
    mean = training.layer("penultimate").double().mean(dim=0)
    expected = []
    for row, logits in zip(unseen.layer("penultimate").double(), unseen.logits.double(), strict=True):
        top = int(logits.argmax())
        distances = [
            (logits[top] - logits[c]) / (weight[top] - weight[c]).double().norm()
            for c in range(4)
            if c != top
        ]
        expected.append(-torch.stack(distances).mean() / (row - mean).norm())
    # The layer is recovered from features and logits in single precision.
    assert torch.allclose(FDBD().fit(training).score(unseen), torch.stack(expected), atol=1e-5)


def test_scores_are_those_of_pytorch_ood(published):
    assert published.match("FDBD", FDBD())


def test_a_row_at_the_mean_has_a_finite_score():
    torch.manual_seed(0)
    weight, bias = torch.randn(3, 4), torch.randn(3)
    training = trace_of(torch.randn(50, 4), weight, bias)
    monitor = FDBD().fit(training)
    assert torch.isfinite(monitor.score(trace_of(monitor.mean_[None], weight, bias))).all()


def test_classes_with_equal_weights_have_no_boundary():
    torch.manual_seed(0)
    weight, bias = torch.randn(3, 4), torch.tensor([0.0, 1.0, 0.0])
    weight[1] = weight[0]
    training = trace_of(torch.randn(50, 4), weight, bias)
    monitor = FDBD().fit(training)
    assert monitor.inverse_[0].tolist()[:2] == [0.0, 0.0]
    assert monitor.inverse_[0, 2].item() == pytest.approx(
        0.5 / (weight[0] - weight[2]).norm().item(), rel=1e-5
    )


@pytest.mark.parametrize("build", [FDBD, NCI])
@pytest.mark.parametrize("broken", [torch.nan, torch.inf, -torch.inf])
def test_a_broken_feature_never_passes_for_an_ordinary_one(build, broken):
    torch.manual_seed(0)
    training = trace_of(torch.randn(50, 4), torch.randn(3, 4), torch.randn(3))
    features = training.layer("penultimate")[:2].clone()
    features[0, 1] = broken
    unseen = Trace(training.logits[:2], {"penultimate": features})
    assert torch.isfinite(build().fit(training).score(unseen)).tolist() == [False, True]
