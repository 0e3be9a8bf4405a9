"""Dropout, ensembles and temperature, against closed forms and another minimiser."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from torch import nn

import assay
from assay import Network, Trace
from assay.errors import InputError, NotFittedError, StorageError
from assay.monitors import (
    ActivationPattern,
    EnsembleDisagreement,
    MaxSoftmax,
    MonteCarloDropout,
    TemperatureScaled,
)
from assay.monitors.parts.uncertainty import MEASURES


class Constant(nn.Module):
    """The same logits for every input."""

    def __init__(self, logits):
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(logits))

    def forward(self, inputs):
        return self.logits.expand(len(inputs), -1)


def small_network(seed, dropout=0.5):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Network(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, 3)))


@pytest.fixture
def inputs():
    return torch.randn(30, 4, generator=torch.Generator().manual_seed(0))


def test_measures_of_a_case_by_hand():
    # Two predictions, sure of opposite classes: entropy ln 2, all of it disagreement, half off the mode.
    opposite = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]], dtype=torch.float64)
    agreed = torch.tensor([[[0.5, 0.5]], [[0.5, 0.5]]], dtype=torch.float64)
    expected = {"entropy": (math.log(2), math.log(2)), "mutual_information": (math.log(2), 0.0)}
    expected["variation_ratio"] = (0.5, 0.0)
    for name, measure in MEASURES.items():
        assert measure(opposite).item() == pytest.approx(expected[name][0])
        assert measure(agreed).item() == pytest.approx(expected[name][1])
        assert measure(opposite * torch.nan).isnan().all()


def test_dropout_scores_equal_a_loop_over_the_passes(inputs):
    network = small_network(0)
    trace = network.observe(inputs, keep_inputs=True)
    scores = MonteCarloDropout(network, passes=5, seed=3).fit(trace).score(trace)
    mean = torch.softmax(network.dropout_logits(inputs, 5, 3).double(), dim=2).mean(dim=0).numpy()
    np.testing.assert_allclose(scores, -(mean * np.log(mean)).sum(axis=1))
    again = MonteCarloDropout(network, passes=5, seed=3).fit(trace)
    assert torch.equal(again.score(trace), scores)
    assert not torch.equal(MonteCarloDropout(network, passes=5, seed=4).fit(trace).score(trace), scores)
    rows = torch.cat([again.score(trace[row]) for row in range(30)])
    # The same masks for every row; only float32 matrix products round by batch size.
    torch.testing.assert_close(rows, scores, rtol=1e-5, atol=1e-6)


def test_dropout_goes_through_a_file_with_its_network(inputs, tmp_path):
    network = small_network(0)
    trace = network.observe(inputs, keep_inputs=True)
    monitor = MonteCarloDropout(network, passes=3, measure="mutual_information").fit(trace)
    assay.save(monitor, tmp_path / "dropout")
    assert torch.equal(assay.load(tmp_path / "dropout", network=network).score(trace), monitor.score(trace))
    with pytest.raises(StorageError, match="network"):
        assay.load(tmp_path / "dropout")


def test_dropout_needs_inputs_dropout_layers_and_a_fit(inputs):
    network = small_network(0)
    trace = network.observe(inputs, keep_inputs=True)
    assert MonteCarloDropout.metadata.needs.inputs
    with pytest.raises(NotFittedError):
        MonteCarloDropout(network).score(trace)
    with pytest.raises(InputError, match="keep_inputs=True"):
        MonteCarloDropout(network).fit(trace).score(network.observe(inputs))
    plain = small_network(0, dropout=0.0)
    with pytest.raises(InputError, match="dropout layers"):
        MonteCarloDropout(plain).fit(trace).score(trace)
    for options in ({"passes": 1}, {"measure": "spread"}):
        with pytest.raises(InputError, match=next(iter(options))):
            MonteCarloDropout(network, **options)


def test_an_ensemble_is_unsure_exactly_where_its_networks_differ(inputs, tmp_path):
    logits = [[4.0, 0.0, 0.0], [0.0, 4.0, 0.0]]
    networks = [Network(Constant(row), layers=()) for row in logits]
    trace = networks[0].observe(inputs, keep_inputs=True)
    p = torch.softmax(torch.tensor(logits).double(), dim=1)
    mean = p.mean(dim=0)
    # sum_m KL(p_m || mean) / M, the disagreement of the paper per network.
    divergence = (p * (p / mean).log()).sum().item() / 2
    monitor = EnsembleDisagreement(networks).fit(trace)
    assert monitor.score(trace).tolist() == pytest.approx([divergence] * 30)
    alike = EnsembleDisagreement([networks[0], Network(Constant(logits[0]), layers=())]).fit(trace)
    assert alike.score(trace).tolist() == pytest.approx([0.0] * 30, abs=1e-12)
    assay.save(monitor, tmp_path / "ensemble")
    loaded = assay.load(tmp_path / "ensemble", network=networks)
    assert torch.equal(loaded.score(trace), monitor.score(trace))


def test_an_ensemble_of_one_or_of_different_classes_is_refused(inputs):
    network, other = small_network(0), Network(Constant([0.0, 1.0]), layers=())
    trace = network.observe(inputs, keep_inputs=True)
    with pytest.raises(InputError, match="at least 2 networks"):
        EnsembleDisagreement([network])
    with pytest.raises(InputError, match=r"\[3, 2\]"):
        EnsembleDisagreement([network, other]).fit(trace).score(trace)


def labelled(seed, rows=4000, sharpness=3.0):
    """Logits that are `sharpness` times too large: labels come from their softmax at that temperature."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, 4, generator=generator)
    labels = torch.multinomial(torch.softmax(logits, dim=1), 1, generator=generator)[:, 0]
    return Trace(logits * sharpness, {"penultimate": logits}, labels)


def test_the_temperature_is_where_the_likelihood_is_flat():
    trace = labelled(0)
    monitor = TemperatureScaled(MaxSoftmax()).fit(trace)
    logits, labels = trace.logits.double(), trace.labels

    def slope(temperature):
        scaled = torch.softmax(logits / temperature, dim=1)
        return ((scaled * logits).sum(dim=1) - logits.gather(1, labels[:, None])[:, 0]).mean().item()

    # The root of the derivative in 1 / T, by another method.
    assert monitor.temperature_ == pytest.approx(brentq(slope, 0.1, 50), rel=1e-4)
    # 4000 labels determine T to a few percent.
    assert monitor.temperature_ == pytest.approx(3.0, rel=0.1)
    expected = MaxSoftmax().fit(trace).score(Trace(trace.logits / monitor.temperature_))
    assert torch.equal(monitor.score(trace), expected)


def test_all_rows_right_stops_at_the_coldest_temperature():
    trace = Trace(torch.eye(3) * 5, labels=torch.arange(3))
    scores = TemperatureScaled(MaxSoftmax()).fit(trace).score(trace)
    assert torch.isfinite(scores).all()


def test_temperature_streams_samples_and_goes_through_files(tmp_path):
    trace = labelled(1, rows=300)
    whole = TemperatureScaled(ActivationPattern(), limit=50, seed=2).fit(trace)
    parts = TemperatureScaled(ActivationPattern(), limit=50, seed=2).fit(
        [trace[:7], trace[7:190], trace[190:]]
    )
    assert whole.layers == ("penultimate",)
    assert whole.temperature_ == parts.temperature_
    assert torch.equal(whole.score(trace), parts.score(trace))
    assert whole.nbytes > whole.monitor.nbytes > 0
    assay.save(whole, tmp_path / "scaled")
    assert torch.equal(assay.load(tmp_path / "scaled").score(trace), whole.score(trace))


def test_temperature_needs_labels_of_known_classes_and_a_monitor():
    trace = labelled(0, rows=20)
    with pytest.raises(InputError, match="with labels"):
        TemperatureScaled(MaxSoftmax()).fit(Trace(trace.logits))
    with pytest.raises(InputError, match="from 0 to 3"):
        TemperatureScaled(MaxSoftmax()).fit(Trace(trace.logits, labels=trace.labels - 1))
    with pytest.raises(InputError, match="a monitor"):
        TemperatureScaled("energy")
    with pytest.raises(NotFittedError):
        TemperatureScaled(MaxSoftmax()).score(trace)
