"""The public contract of the design, called as it is written there, on the bundled digits."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import assay
from assay.demo.networks import small_cnn, trained

NEED_A_TRACE = [
    "ActivationBox",
    "ActivationPattern",
    "Energy",
    "Entropy",
    "GEN",
    "GaussianInterval",
    "KLMatching",
    "KNN",
    "Mahalanobis",
    "MaxLogit",
    "MaxSoftmax",
    "NNGuide",
    "ReAct",
    "RelativeMahalanobis",
    "SHE",
    "TemperatureScaled",
    "ViM",
]


@pytest.fixture(scope="module")
def data():
    return assay.data.digits()


@pytest.fixture(scope="module")
def module(data):
    return trained(small_cnn, data[0], epochs=12)


@pytest.fixture(scope="module")
def network(module):
    return assay.Network(module, layers="penultimate")


@pytest.fixture(scope="module")
def train_trace(network, data):
    return network.observe(data[0], keep_inputs=True)


@pytest.fixture(scope="module")
def test_trace(network, data):
    return network.observe(data[1], keep_inputs=True)


@pytest.fixture(scope="module")
def guard(network, train_trace, test_trace):
    monitor = assay.monitors.Mahalanobis(layer="penultimate").fit(train_trace)
    return assay.Guard(network, monitor).calibrate(test_trace, false_alarm_rate=0.05)


def test_network_and_trace(network, data):
    inputs, labels = data[1]
    moving = inputs[:2].clone().requires_grad_()
    network(moving).sum().backward()
    assert moving.grad is not None
    for form in (DataLoader(TensorDataset(inputs, labels), batch_size=64), (inputs, labels), inputs):
        trace = network.observe(form, keep_inputs=False)
        assert trace.logits.shape == (450, 10)
        assert trace.features["penultimate"].shape == (450, 64)
        assert trace.inputs is None
    assert trace.labels is None
    assert trace.probabilities.shape == (450, 10)
    assert trace.predictions.shape == (450,)
    with pytest.raises(assay.AssayError):
        _ = trace.correct
    assert len(trace[trace.predictions == 3]) == int((trace.predictions == 3).sum())
    assert len(trace[10:20]) == 10


def test_monitors_that_need_nothing_but_a_trace_are_built_without_arguments(train_trace, test_trace):
    for name in NEED_A_TRACE:
        monitor = getattr(assay.monitors, name)()
        assert monitor.fit(train_trace) is monitor
        scores = monitor.score(test_trace)
        assert scores.shape == (450,)
        assert torch.isfinite(scores).all(), name


def test_odin_takes_the_network(network, train_trace, test_trace):
    odin = assay.monitors.ODIN(network, temperature=1000.0, magnitude=0.0014).fit(train_trace)
    assert odin.score(test_trace).shape == (450,)


def test_guard_and_files(guard, network, data, tmp_path):
    verdict = guard(data[1].inputs)
    assert verdict.predictions.shape == verdict.scores.shape == verdict.alarm.shape == (450,)
    assert verdict.alarm.dtype == torch.bool
    assay.save(guard, tmp_path / "guard")
    assert torch.equal(assay.load(tmp_path / "guard", network=network)(data[1].inputs).alarm, verdict.alarm)
    assert guard(torch.full((1, 1, 8, 8), torch.nan)).alarm.tolist() == [True]


def test_mira(network, data, tmp_path):
    result = assay.mira_score(network, *data, layer="penultimate", accuracy_threshold=0.5, steps=5, seed=0)
    assert result.epsilon_min < result.epsilon_max
    assert result.interval[0] <= result.score <= result.interval[1]
    assert np.isfinite(result.baseline)
    assert len(result.curve)
    assert len(result.per_class) == 10
    everything_a_result_owes(result, tmp_path)


def test_benchmark(guard, network, data, tmp_path):
    inputs, labels = data[1][0][:60], data[1][1][:60]
    scenarios = list(
        assay.build_scenarios(
            inputs,
            labels,
            network=network,
            severities=(1, 5),
            novelty={"noise": torch.rand(60, 1, 8, 8)},
            seed=0,
        )
    )
    assert {scenario.category for scenario in scenarios} == {
        "novelty",
        "noise",
        "anomaly",
        "shift",
        "adversarial",
    }
    chosen = [next(s for s in scenarios if s.category == c) for c in ("novelty", "noise", "adversarial")]
    for scenario in chosen:
        assert len(scenario.inputs) == len(scenario.labels) == len(scenario.is_fault)
        assert scenario.name
        assert 0 <= scenario.severity <= 5  # novelty has none, which is 0
    result = assay.run_benchmark({"maha": guard}, chosen)
    measures = ["mcc", "fpr", "fnr", "precision", "recall", "f1", "auroc"]
    wanted = ["guard", "scenario", "category", "severity"]
    wanted += [f"{side}_{measure}" for side in ("specific", "overall") for measure in measures]
    wanted += ["model_mcc", "system_mcc", "model_seconds", "monitor_seconds", "monitor_bytes"]
    assert set(wanted) <= set(result.to_frame().columns)
    assert len(result.to_frame()) == 3
    everything_a_result_owes(result, tmp_path)


def test_volatility(test_trace, train_trace, tmp_path):
    assert isinstance(assay.volatility_in_certainty(test_trace.probabilities), float)
    watch = assay.VolatilityWatch(window=100).calibrate(train_trace.probabilities)
    state = watch.update(test_trace.probabilities)
    assert np.isfinite(state.log_vc)
    assert state.alarm in (True, False)
    assay.save(watch, tmp_path / "watch")
    assert assay.load(tmp_path / "watch").update(test_trace.probabilities[:1]).rows == 451
    everything_a_result_owes(assay.estimate_accuracy(train_trace, test_trace), tmp_path)


def test_reshaping(network, test_trace, tmp_path):
    bins = assay.Bins(layer="penultimate", origin=0.0, width=1.0, last=34, neurons=None)
    histogram = assay.Histogram.of(test_trace[:100], bins) + assay.Histogram.of(test_trace[100:200], bins)
    assert histogram.counts.shape == (64, 35)
    assert histogram.total == 200
    assert assay.Bins.from_bounds(network, layer="penultimate", low=0.0, high=1.0, width=1.0).last >= 1
    assay.save(histogram, tmp_path / "histogram")
    assert torch.equal(
        torch.as_tensor(assay.load(tmp_path / "histogram").counts), torch.as_tensor(histogram.counts)
    )
    whole = assay.Histogram.of(test_trace, bins)
    result = assay.reshape(test_trace, histogram, epsilon=0.2)
    assert result.kept.dtype in (torch.bool, np.dtype(bool))
    assert int(result.kept.sum()) <= result.bound
    assert result.gap >= 0
    estimate = result.estimate(assay.accuracy)
    assert estimate.lower <= estimate.value <= estimate.upper
    assert 0 <= assay.portion_similarity(whole, histogram) <= 1
    assert assay.kl_similarity(whole, histogram) >= 0
    everything_a_result_owes(result, tmp_path)


def test_output_distribution(tmp_path):
    space = assay.InputSpace(shape=(8,), values=10)
    edges = np.arange(-0.5, 73.5, 4)
    dist = assay.sample_outputs(lambda x: x.sum(dim=1).float(), space, bins=edges, budget=50_000, seed=0)
    assert np.array_equal(dist.edges, edges)
    assert len(dist.log_density) == len(dist.error) == len(edges) - 1
    assert len(dist.samples(9)) > 0
    assert dist.converged in (True, False)
    assert dist.diagnostics is not None
    everything_a_result_owes(dist, tmp_path)

    def next_token_logits(tokens):
        return torch.nn.functional.one_hot(tokens, 5).float()  # likes to repeat itself

    lm = assay.CausalLM(next_token_logits, values=5, length=4)
    dist = assay.sample_outputs(lm, bins=np.array([0.0, 3.0, 4.0, 5.0, 6.0]), budget=20_000, seed=0)
    # A repetition costs ln(e + 4) - 1 = 0.9 nats, a change 1.9. Three steps, k changes: C(3, k) 4^k / 5^3.
    exact = np.log(np.array([1, 12, 48, 64]) / 125)
    assert np.abs(np.asarray(dist.log_density) - exact).max() < 0.2


def test_precision_recall(tmp_path):
    space = assay.InputSpace(shape=(8,), values=10)
    edges = np.arange(-0.5, 73.5, 4)
    dist = assay.sample_outputs(lambda x: x.sum(dim=1).float(), space, bins=edges, budget=20_000, seed=0)
    curve = assay.precision_recall(dist, lambda x: (x[:, 0] == 0).float(), confident="low")
    wanted = {"threshold", "precision", "log_recall"}
    assert wanted <= set(curve.to_frame().columns)
    assert np.isfinite(curve.aupr)
    everything_a_result_owes(curve, tmp_path)
    labels = pd.DataFrame({"bin": range(len(edges) - 1), "score": 0.5, "annotator": "ann"})
    other = assay.precision_recall(dist, labels, confident="high")
    assert np.allclose(other.precision, 0.5)
    assert other.threshold[0] > other.threshold[-1]
    everything_a_result_owes(assay.compare_precision_recall({"rule": curve, "ann": other}), tmp_path)


def everything_a_result_owes(result, tmp_path):
    assert len(result.to_frame()) > 0
    assert result.plot().axes
    assert isinstance(result.summary(), str)
    assert result.title
    path = tmp_path / type(result).__name__
    assay.save(result, path)
    assert assay.load(path).to_frame().equals(result.to_frame())
