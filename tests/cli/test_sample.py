"""`assay sample` as a person or a pipeline meets it."""

import json

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import assay
from assay.cli.sample import sample
from assay.errors import InputError

MODULE = """
import torch, assay

def total(inputs):
    return inputs.double().sum(dim=1)

def broken(inputs):
    return total(inputs) * float("nan")

def network():
    torch.manual_seed(0)
    first, last = torch.nn.Linear(9, 4), torch.nn.Linear(4, 2)
    return torch.nn.Sequential(torch.nn.Flatten(), first, torch.nn.ReLU(), last)

def language_model():
    table = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
    return assay.CausalLM(lambda tokens: table[tokens], values=4, length=4)
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    (tmp_path / "models_to_sample.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    app = typer.Typer()
    app.command()(sample)
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


def test_a_function_is_sampled_and_saved(run, tmp_path):
    result = run(
        "models_to_sample:total",
        "--shape",
        "6",
        "--values",
        "2",
        "--bins=-0.5:6.5:7",
        "--budget",
        "6000",
        "--json",
    )
    assert result.exit_code in (0, 3), result.output
    facts = json.loads(result.output)
    dist = assay.load(tmp_path / "outputs.safetensors")
    assert facts["converged"] == dist.converged == (result.exit_code == 0)
    assert [row["log_density"] for row in facts["bins"]] == pytest.approx(dist.log_density.tolist())
    # Binomial: the middle bin holds 20 of 64 inputs; a tenth is over five of the errors such a run states.
    assert dist.log_density[3] == pytest.approx(np.log(20 / 64), abs=0.15)


def test_a_logit_is_sampled_with_a_report(run, tmp_path):
    result = run(
        "models_to_sample:network",
        *("--kind", "logit", "--class", "1", "--shape", "3x3", "--values", "4", "--scale", "3"),
        *("--bins", "12", "--budget", "4000", "--output", "logit.safetensors", "--report", "logit.html"),
    )
    assert result.exit_code in (0, 3), result.output
    assert "saved to logit.safetensors" in result.output
    assert (tmp_path / "logit.html").stat().st_size > 1000


def test_a_language_model_is_sampled(run):
    result = run(
        "models_to_sample:language_model", "--kind", "language-model", "--bins", "8", "--budget", "2000"
    )
    assert result.exit_code in (0, 3), result.output
    assert "possible inputs" in result.output


def test_what_makes_no_sense_is_an_error_of_assay(run):
    for arguments, message in (
        (("models_to_sample:total", "--shape", "a"), "28x28"),
        (("models_to_sample:total", "--shape", "3", "--bins", "1:2"), "low:high:number"),
        (("models_to_sample:broken", "--shape", "3"), "NaN"),
    ):
        result = run(*arguments)
        assert isinstance(result.exception, InputError)
        assert message in str(result.exception)
