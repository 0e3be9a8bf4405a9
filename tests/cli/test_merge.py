"""Merging files is adding histograms; what does not add up is named."""

import json

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import assay
from assay import Bins, Guard, Histogram, Network, Trace, Watch
from assay.cli import app
from assay.monitors import Energy

BINS = Bins(width=0.5, last=9, overflow=True)


def trace(count, seed):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(count, 3, generator=generator)
    return Trace(torch.randn(count, 2, generator=generator), {"penultimate": features})


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number in range(3):
        assay.save(Histogram.of(trace(10 + number, number), BINS), f"device-{number}.safetensors")
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(app, ["merge", *arguments])


def test_the_sum_is_that_of_all_rows(folder):
    result = run(*(f"device-{number}.safetensors" for number in range(3)), "--output", "fleet", "--json")
    assert json.loads(result.output) == {"files": 3, "kind": "Histogram", "inputs": 33, "output": "fleet"}
    whole = Histogram.of(Trace.concatenate([trace(10 + number, number) for number in range(3)]), BINS)
    assert np.array_equal(assay.load("fleet").counts, whole.counts)
    assert np.array_equal(assay.load("fleet").outside, whole.outside)


def test_counts_of_services_and_of_predictions_add_up_too(folder):
    network = Network(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2)))
    monitor = Energy().fit(network.observe(torch.zeros(2, 3)))
    watch = Watch(Guard(network, monitor, 0.0), BINS)
    watch(torch.ones(5, 3))
    watch.keep("service")
    assert "15 inputs of 2 files" in run("service", "device-0.safetensors").output
    reference = trace(60, 9)
    labelled = Trace(reference.logits, reference.features, reference.predictions)
    estimator = assay.AccuracyEstimator(window=20).fit(labelled)
    for number in range(2):
        assay.save(estimator.count(trace(40, number)), f"counts-{number}")
    assert run("counts-0", "counts-1", "--output", "counts").exit_code == 0
    both = estimator.count(trace(40, 0)) + estimator.count(trace(40, 1))
    assert assay.load("counts").to_frame().equals(both.to_frame())


def test_what_is_counted_twice_is_refused_also_under_another_name(folder):
    (folder / "copy").write_bytes((folder / "device-1.safetensors").read_bytes())
    for command in (["merge"], ["reshape", "trace"]):
        assay.save(trace(20, 5), "trace")
        for files in (["device-1.safetensors"] * 2, ["device-1.safetensors", "device-0.safetensors", "copy"]):
            result = CliRunner().invoke(app, [*command, *files])
            assert isinstance(result.exception, assay.AssayError), result.output
            assert "once" in str(result.exception)
            assert files[-1] in str(result.exception)
    assert not (folder / "merged.safetensors").exists()


def test_what_does_not_add_up_is_named_and_nothing_is_written(folder):
    def error(*arguments):
        result = run("device-0.safetensors", *arguments, "--output", "fleet")
        assert isinstance(result.exception, assay.AssayError), result.output
        assert not (folder / "fleet").exists()
        return str(result.exception)

    assay.save(Histogram.of(trace(5, 0), Bins(width=1.0, overflow=True)), "wider")
    assert "wider cannot be added" in error("wider")
    assay.save(trace(3, 0), "trace")
    assert "expected a Histogram in trace, got a Trace" in error("trace")
    (folder / "cut").write_bytes((folder / "device-1.safetensors").read_bytes()[:-5])
    assert "cut is truncated or damaged" in error("cut")
    assert "expected a file at none" in error("none")
