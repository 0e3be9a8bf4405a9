"""`assay benchmark`, from the shell to the report."""

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import assay
from assay.cli import app
from assay.errors import InputError

NETWORK = "assay.demo.networks:wide_mlp"


@pytest.fixture
def run(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    few = ["--train", "digits", "--test", "digits", "--fault", "contrast", "--severity", "3"]

    def invoke(*arguments):
        torch.manual_seed(0)  # the network is not trained: its weights are drawn at each call
        return CliRunner().invoke(app, ["benchmark", NETWORK, *few, *arguments])

    return invoke


def test_it_says_which_monitor_to_ship_saves_the_result_and_writes_the_report(run, tmp_path):
    done = run("--monitor", "Energy", "--monitor", "ODIN", "--report", "report.html", "--checkpoint", "cells")
    assert done.exit_code == 0, done.output
    result = assay.load(tmp_path / "benchmark.safetensors", kind="BenchmarkResult")
    assert result.summary() in done.output
    assert set(result.to_frame()["guard"]) == {"Energy", "ODIN"}
    assert "Which monitor to ship" in (tmp_path / "report.html").read_text()
    assert len(list((tmp_path / "cells").iterdir())) == 2


def test_it_speaks_json_and_fails_the_gate(run):
    done = run("--monitor", "MaxSoftmax", "--json", "--least-mcc", "0.99", "--novelty", "same=digits")
    assert done.exit_code == 1
    facts = json.loads(done.stdout)
    assert facts["best"] == "MaxSoftmax"
    assert facts["scenarios"] == 2
    found = facts["guards"]["MaxSoftmax"]
    assert found["monitor_bytes"] > 0
    wanted = str(found["specific_mcc"])
    undecided = run("--monitor", "MaxSoftmax", "--least-mcc", wanted, "--novelty", "same=digits")
    assert undecided.exit_code == 3
    assert "cannot decide: the mean specific MCC lies between" in undecided.stderr


def test_data_that_must_be_apart_are_refused_where_they_are_not(run, tmp_path):
    inputs, labels = assay.data.digits()[0]
    for name, order in (("a", slice(None)), ("b", slice(None, None, -1))):
        np.savez(tmp_path / f"{name}.npz", x=inputs.numpy()[order], y=labels.numpy()[order])
    for twice, message in (
        (["--train", "a.npz", "--test", "b.npz"], "--test with rows of its own, got those of --train"),
        (["--train", "a.npz", "--validation", "b.npz"], "--validation with rows of its own"),
    ):
        done = run(*twice)
        assert isinstance(done.exception, InputError)
        assert message in str(done.exception)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--monitor", "Nothing"], "expected a monitor of assay.monitors, got 'Nothing'"),
        (["--monitor", "InputRange"], "with a setting for low"),
        (["--severity", "6"], "severity from 1 to 5"),
        (["--novelty", "digits"], "name=data"),
        (["--fault", "rain"], "got 'rain'"),
    ],
)
def test_wrong_use_is_one_clear_sentence(run, arguments, message):
    done = run(*arguments)
    assert isinstance(done.exception, InputError)
    assert message in str(done.exception)
