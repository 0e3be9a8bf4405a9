"""`assay report --against`: two saved runs side by side."""

import json

import pytest
from typer.testing import CliRunner

import assay
from assay.accuracy.headline import Headline
from assay.accuracy.result import AccuracyEstimates
from assay.cli import app
from assay.errors import InputError


def answer(value):
    headline = Headline.of(value, value - 0.03, value + 0.03, 0.9, "a reason")
    return AccuracyEstimates((), headline=headline, rows=500, reference_accuracy=0.9, level=0.95)


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, value in (("new", 0.7), ("old", 0.9), ("same", 0.7)):
        assay.save(answer(value), name)
    return lambda *arguments: CliRunner().invoke(app, ["report", *arguments])


def test_what_became_worse_stands_first(run, tmp_path):
    result = run("new", "--against", "old", "--json")
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.stdout)["changes"][0]
    assert row["verdict"] == "worse"
    assert row["difference"] == pytest.approx(-0.2)
    assert row["upper"] == pytest.approx(-0.2 + 0.03 * 2**0.5)
    page = (tmp_path / "report.html").read_text()
    assert page.index("Worse: accuracy.") < page.index("What has changed?") < page.index("single method")
    assert "Nothing changed beyond chance" in run("new", "--against", "same").output


def test_each_result_needs_its_own_older_one(run):
    with pytest.raises(InputError, match="an older result for each of 2, got 1"):
        raise run("new", "same", "--against", "old").exception
