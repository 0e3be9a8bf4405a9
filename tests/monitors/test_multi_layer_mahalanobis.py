"""MultiLayerMahalanobis is a weighted sum of what Mahalanobis says of each layer."""

import pytest
import torch
from sklearn.linear_model import LogisticRegressionCV
from torch import nn

import assay
from assay import Guard, Network, OnnxGuard, Trace
from assay.errors import InputError, NotFittedError
from assay.monitors import Mahalanobis, MultiLayerMahalanobis, RelativeMahalanobis

LAYERS = ("first", "second")


def trace_of(rows, seed, moved=0.0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(rows) % 3
    centres = 2 * torch.eye(3, 5)[labels]
    first = torch.randn(rows, 5, generator=generator) + centres + moved
    second = 10 * (torch.randn(rows, 4, generator=generator) + centres[:, :4])
    return Trace(4.0 * torch.eye(3)[labels], {"first": first, "second": second}, labels)


@pytest.fixture
def training():
    return trace_of(300, 0)


def each(training, trace, member=Mahalanobis):
    return torch.stack([member(layer=layer).fit(training).score(trace) for layer in LAYERS])


def test_given_weights_are_used(training):
    unseen = trace_of(20, 1)
    monitor = MultiLayerMahalanobis(layers=LAYERS, weights=(0.5, 2.0)).fit(training)
    distances = each(training, unseen)
    assert torch.equal(monitor.by_layer(unseen), distances)
    assert torch.allclose(monitor.score(unseen), 0.5 * distances[0] + 2 * distances[1])


def test_layers_weigh_by_their_spread_in_training(training):
    unseen = trace_of(20, 1)
    spread = each(training, training).std(dim=1, correction=0)
    expected = (each(training, unseen) / spread[:, None]).sum(dim=0)
    assert torch.allclose(MultiLayerMahalanobis(layers=LAYERS).fit(training).score(unseen), expected)


def test_relative_distances_weigh_by_their_own_spread(training):
    unseen = trace_of(20, 1)
    spread = each(training, training, RelativeMahalanobis).std(dim=1, correction=0)
    expected = (each(training, unseen, RelativeMahalanobis) / spread[:, None]).sum(dim=0)
    monitor = MultiLayerMahalanobis(layers=LAYERS, relative=True).fit(training)
    assert torch.allclose(monitor.score(unseen), expected)


@pytest.mark.parametrize(
    ("name", "relative"), [("MultiLayerMahalanobis", False), ("MultiLayerMahalanobis, relative", True)]
)
def test_scores_are_those_of_pytorch_ood(published, name, relative):
    layers = ("penultimate", "half")
    assert published.match(name, MultiLayerMahalanobis(layers=layers, weights=(1, 1), relative=relative))


def test_weights_from_examples_are_those_of_logistic_regression(training):
    inside, outside = trace_of(90, 1), trace_of(60, 2, moved=1.0)
    monitor = MultiLayerMahalanobis(layers=LAYERS).fit(training)
    spread = 1 / monitor.weights_
    rows = torch.cat([each(training, inside), each(training, outside)], dim=1) / spread[:, None]
    regression = LogisticRegressionCV(
        cv=5, l1_ratios=(0,), scoring="accuracy", use_legacy_attributes=False, tol=1e-8
    ).fit(rows.T.numpy(), [0] * 90 + [1] * 60)
    assert monitor.weigh(inside, outside) is monitor
    # Two solvers, each to its own tolerance.
    assert (monitor.weights_ * spread).tolist() == pytest.approx(regression.coef_[0].tolist(), rel=1e-2)
    assert monitor.weights_[0] * spread[0] > monitor.weights_[1] * spread[1]  # only the first layer moved


def test_a_layer_without_spread_is_named(training):
    flat = Trace(training.logits, {**training.features, "second": training.logits}, training.labels)
    monitor = MultiLayerMahalanobis(layers=LAYERS).fit(flat)
    assert monitor.remedy_.startswith("layer 'second': ")
    assert torch.isfinite(monitor.score(flat)).all()


@pytest.mark.parametrize("relative", [False, True])
def test_a_guard_over_two_layers_is_saved_and_exported(tmp_path, relative):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, 3))
    network = Network(module, layers=("1", "penultimate"))
    trace = network.observe(torch.randn(200, 6))
    layers = ["1", "penultimate"]
    monitor = MultiLayerMahalanobis(layers=layers, estimator="oas", relative=relative).fit(trace)
    guard = Guard(network, monitor).calibrate(trace, 0.1)
    inputs = 2 * torch.randn(30, 6)
    expected = guard(inputs)
    assay.save(guard, tmp_path / "guard.safetensors")
    again = assay.load(tmp_path / "guard.safetensors", network=network)
    assert again.monitor.layers == ("1", "penultimate")
    assert torch.equal(again(inputs).scores, expected.scores)
    guard.export(tmp_path / "guard.onnx")
    exported = OnnxGuard(tmp_path / "guard.onnx")(inputs)
    assert torch.allclose(exported.scores.double(), expected.scores, rtol=1e-4)  # in single precision


@pytest.mark.parametrize(
    "arguments",
    [
        {"layers": []},
        {"layers": "first"},
        {"layers": ["first", "first"]},
        {"layers": LAYERS, "weights": [1.0]},
        {"layers": LAYERS, "limit": 1},
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments):
    with pytest.raises(InputError, match="expected"):
        MultiLayerMahalanobis(**arguments)


def test_weighing_needs_a_fit_and_enough_rows(training):
    monitor = MultiLayerMahalanobis(layers=LAYERS)
    with pytest.raises(NotFittedError):
        monitor.weigh(training, training)
    with pytest.raises(InputError, match="at least 5 rows outside with finite distances"):
        monitor.fit(training).weigh(training, training[:3])
