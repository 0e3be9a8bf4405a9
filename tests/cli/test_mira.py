"""`assay mira` as a person or a pipeline meets it."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import assay
from assay.cli import app
from assay.errors import InputError
from digit_networks import write_networks


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_networks(tmp_path_factory.mktemp("networks"), "nets_for_mira", ["cnn", "mlp"])


@pytest.fixture
def run(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    common = ["--train", "digits", "--test", "digits", "--steps", "4"]
    return lambda *arguments: CliRunner().invoke(app, ["mira", *arguments, *common])


def test_one_network_gets_its_score_in_words(run):
    result = run("nets_for_mira:mlp")
    assert result.exit_code == 0, result.output
    assert "The MIRA score at layer penultimate is" in result.output


def test_networks_and_layers_are_ranked_saved_and_reported(run, folder):
    result = run(
        "nets_for_mira:mlp", "nets_for_mira:cnn", "--output", "c.assay", "--report", "mira.html", "--json"
    )
    assert result.exit_code == 0, result.output
    rows = json.loads(result.output)
    assert [row["rank"] for row in rows] == [1, 2]
    assert {row["network"] for row in rows} == {"nets_for_mira:mlp", "nets_for_mira:cnn"}
    stored = assay.load(folder / "c.assay", kind="MonitorabilityComparison").to_frame()
    assert stored["score"].tolist() == pytest.approx([row["score"] for row in rows], rel=1e-12)
    assert "t-SNE" in (folder / "mira.html").read_text()
    ranked = run("nets_for_mira:cnn", "--layer", "penultimate", "--layer", "4+penultimate")
    assert "4 + penultimate" in ranked.output


def test_a_gate_that_is_not_reached_fails_the_pipeline(run):
    assert run("nets_for_mira:mlp", "--least-mira", "1e9").exit_code == 1
    assert run("nets_for_mira:mlp", "--least-mira", "-1").exit_code == 0


def test_the_rows_it_was_fitted_on_are_refused_as_test_rows(run, folder):
    inputs, labels = assay.data.digits()[0]
    for name in ("learned", "tested"):
        np.savez(folder / f"{name}.npz", inputs=inputs.numpy(), labels=labels.numpy())
    result = CliRunner().invoke(
        app, ["mira", "nets_for_mira:mlp", "--train", "learned.npz", "--test", "tested.npz"]
    )
    assert isinstance(result.exception, InputError)
    assert "--test with rows of its own, got those of --train" in str(result.exception)
