"""`assay monitorability` as a person or a pipeline meets it."""

import json

import pytest
from typer.testing import CliRunner

import assay
from assay.cli import app
from assay.errors import InputError
from digit_networks import write_networks


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_networks(tmp_path_factory.mktemp("networks"), "nets_for_the_panel", ["cnn"])


@pytest.fixture
def run(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    common = ["--train", "digits", "--test", "digits", "--rows", "100"]
    return lambda *arguments: CliRunner().invoke(app, ["monitorability", *common, *arguments])


def test_one_network_gets_its_score_and_a_gate_in_words(run, folder):
    result = run("nets_for_the_panel:cnn", "--output", "found.assay", "--report", "panel.html")
    assert result.exit_code == 0, result.output
    assert "Monitorability is 0." in result.output
    assert "Ship " in result.output
    assert assay.load(folder / "found.assay").inputs == 100
    assert run("nets_for_the_panel:cnn", "--least-monitorability", "0.999").exit_code == 1
    assert run("nets_for_the_panel:cnn", "--least-monitorability", "0.5").exit_code == 0


def test_networks_are_ranked(run):
    result = run("nets_for_the_panel:untrained", "nets_for_the_panel:cnn", "--json")
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)
    assert {row["network"] for row in rows} == {"nets_for_the_panel:cnn", "nets_for_the_panel:untrained"}
    assert rows[0]["score"] >= rows[1]["score"]
    assert rows[0]["lower"] < rows[0]["score"] < rows[0]["upper"]


def test_too_few_rows_are_one_line(run):
    result = run("nets_for_the_panel:cnn", "--rows", "2")
    assert isinstance(result.exception, InputError)
    assert "at least 4 test inputs" in str(result.exception)
