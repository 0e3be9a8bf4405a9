"""`assay annotate` and `assay precision`, all but the serving, which tests/web does in a browser."""

import json

import numpy as np
import pandas as pd
import pytest
import typer
from exact_precision import enumerated, weighted_sum
from typer.testing import CliRunner

import assay
from assay.cli.annotate import annotate
from assay.cli.precision import precision
from assay.errors import InputError
from assay.omniinput.annotation.store import AnnotationStore

MODULE = """
def judge(inputs):
    return (inputs.sum(dim=1) % 3 == 0).double()
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    (tmp_path / "judges_of_inputs.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assay.save(enumerated(weighted_sum, 5, 4, np.arange(-0.5, 48.0, 6.0)), "outputs.safetensors")
    app = typer.Typer()
    app.command()(annotate)
    app.command()(precision)

    def invoke(command, *arguments):
        result = CliRunner().invoke(app, [command, "outputs.safetensors", *arguments])
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return invoke


def test_labels_go_in_and_out_and_become_a_curve(run, tmp_path):
    run("annotate", "--store", "labels.db", "--per-bin", "6", "--export", "tasks.json")
    with AnnotationStore("labels.db") as store:
        items = store.items()
    frame = items.to_frame().assign(score=0.5, annotator="ann").drop(columns=["bin", "weight", "text"])
    frame.to_csv("by_hand.csv", index=False)
    result = run("annotate", "--store", "labels.db", "--import", "by_hand.csv")
    assert f"{len(items)} labels" in result.output
    again = run("annotate", "--store", "labels.db", "--import", "by_hand.csv")  # nothing is doubled
    assert again.exit_code == 0
    run("annotate", "--store", "labels.db", "--export", "labels.csv")
    assert len(pd.read_csv("labels.csv")) == len(items)
    result = run("precision", "labels.db", "--json", "--report", "report.html")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.output)
    assert {row["precision"] for row in facts["curve"]} == {0.5}
    assert assay.load("precision.safetensors").aupr == facts["aupr"]
    assert "Precision and recall over the input space" in (tmp_path / "report.html").read_text()
    assert "one annotator (ann)" in run("precision", "labels.csv").output


def test_a_judge_in_code(run):
    output = run("precision", "judges_of_inputs:judge", "--confident", "high").output
    assert "wrongly confident about" in output
    assert "one annotator (judge)" in output


def test_items_can_be_added_where_they_are_needed(run):
    run("annotate", "--store", "labels.db", "--per-bin", "2", "--export", "labels.csv")
    with AnnotationStore("labels.db") as store:
        before = store.items().counts.sum()
    run("annotate", "--store", "labels.db", "--total", "11", "--export", "labels.csv")  # as it is
    run("annotate", "--store", "labels.db", "--total", "11", "--add", "--export", "labels.csv")
    with AnnotationStore("labels.db") as store:
        assert store.items().counts.sum() == before + 11


def test_what_does_not_belong_together_is_refused(run, tmp_path):
    run("annotate", "--store", "labels.db", "--per-bin", "2", "--export", "labels.csv")
    assay.save(enumerated(weighted_sum, 4, 4, np.arange(-0.5, 48.0, 6.0)), "outputs.safetensors")
    for command in (("annotate", "--store", "labels.db"), ("precision", "labels.db")):
        with pytest.raises(InputError, match="another run"):
            run(*command)
    with pytest.raises(InputError, match="--guideline"):
        run("annotate", "--store", "new.db", "--guideline", "nowhere.txt")


@pytest.mark.parametrize(
    "options", [("--import", "nowhere.csv"), ("--import", "judges_of_inputs.py"), ("--port", "99999999")]
)
def test_a_store_that_came_to_nothing_is_not_left_behind(run, tmp_path, options):
    before = sorted(tmp_path.iterdir())
    with pytest.raises(assay.AssayError):
        run("annotate", "--store", "labels.db", *options)
    assert sorted(tmp_path.iterdir()) == before
    run("annotate", "--store", "labels.db", "--export", "labels.csv")
    with pytest.raises(assay.AssayError):
        run("annotate", "--store", "labels.db", *options)
    with AnnotationStore("labels.db") as store:
        assert len(store.items()), "one that was there stays"
