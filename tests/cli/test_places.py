"""Where commands write: looked at first, and nothing half-made or older is taken for a result."""

import inspect
import os
import sys
from pathlib import Path
from typing import Annotated

import pytest
import typer

import assay
from assay.cli import app, main
from assay.cli.places import Written, with_places

NETWORK = "assay.demo.networks:small_cnn"
WRITING = {
    "accuracy": ["accuracy", "nowhere.csv", "--reference", "nowhere.csv", "--output"],
    "accuracy --plot": ["accuracy", "nowhere.csv", "--reference", "nowhere.csv", "--plot"],
    "accuracy --estimator": ["accuracy", "nowhere.csv", "--reference", "nowhere.csv", "--estimator"],
    "observe": ["observe", NETWORK, "--data", "nowhere.npz", "--output"],
    "demo": ["demo", "--output"],
    "benchmark": ["benchmark", NETWORK, "--train", "nowhere.npz", "--test", "digits", "--output"],
    "benchmark --report": ["benchmark", NETWORK, "--train", "nowhere.npz", "--test", "digits", "--report"],
    "check --junit": ["check", NETWORK, "--data", "nowhere.npz", "--junit"],
    "mira": ["mira", NETWORK, "--train", "nowhere.npz", "--test", "digits", "--output"],
    "mira --report": ["mira", NETWORK, "--train", "nowhere.npz", "--test", "digits", "--report"],
    "merge": ["merge", "nowhere", "--output"],
    "report": ["report", "nowhere", "--output"],
    "reshape": ["reshape", "nowhere", "nowhere", "--output"],
    "reshape --plot": ["reshape", "nowhere", "nowhere", "--plot"],
    "reshape --report": ["reshape", "nowhere", "nowhere", "--report"],
    "sample": ["sample", "nowhere:function", "--shape", "3", "--output"],
    "sample --checkpoint": ["sample", "nowhere:function", "--shape", "3", "--checkpoint"],
    "precision": ["precision", "nowhere", "labels", "--output"],
    "volatility --plot": ["volatility", "nowhere", "--reference", "nowhere", "--plot"],
    "volatility --report": ["volatility", "nowhere", "--reference", "nowhere", "--report"],
    "volatility --watch": ["volatility", "nowhere", "--reference", "nowhere", "--watch"],
    "annotate --store": ["annotate", "nowhere", "--store"],
    "annotate --export": ["annotate", "nowhere", "--store", "labels.db", "--export"],
    "serve --state": ["serve", "nowhere", NETWORK, "--state"],
}


def refused(monkeypatch, capsys, arguments):
    """What is said about arguments that are refused."""
    monkeypatch.setattr(sys, "argv", ["assay", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    said = capsys.readouterr()
    assert stopped.value.code == 2, said
    assert said.out == ""
    (line,) = said.err.splitlines()
    return line.removeprefix("assay: ")


@pytest.mark.parametrize("place", ["none/x.svg", "folder.svg", "pipe.svg", "file/x.svg", "x" * 300 + ".svg"])
@pytest.mark.parametrize("command", WRITING)
def test_where_nothing_can_be_written_is_said_first(monkeypatch, capsys, tmp_path, command, place):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.svg").mkdir()
    (tmp_path / "file").write_text("")
    os.mkfifo(tmp_path / "pipe.svg")
    before = sorted(tmp_path.rglob("*"))
    assert refused(monkeypatch, capsys, [*WRITING[command], place]).startswith(f"cannot write {place}: ")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_that_is_not_writable_is_refused(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "access", lambda *_: False)  # whoever runs the tests may be allowed everything
    for arguments in (WRITING["observe"], ["check", NETWORK, "--data", "digits", "--output"]):
        assert "is not writable" in refused(monkeypatch, capsys, [*arguments, "x"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["volatility", "x", "--reference", "x", "--plot", "plot.jpeg2"],
            "--plot to end in .png, .svg, .pdf",
        ),
        (["check", NETWORK, "--data", "digits", "--output", "file"], "file is a file; choose another folder"),
        (["check", NETWORK, "--data", "digits", "--output", "file/in"], "file is a file; choose another"),
        (
            ["benchmark", NETWORK, "--train", "digits", "--test", "digits", "--checkpoint", "file"],
            "choose another folder",
        ),
        (["reshape", "x", "y", "--output", "same", "--report", "./same"], "both --output and --report"),
    ],
)
def test_places_that_make_no_sense_are_refused(monkeypatch, capsys, tmp_path, arguments, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    assert words in refused(monkeypatch, capsys, arguments)


FAILING = {
    "observe": ["observe", NETWORK, "--data", "nowhere.npz", "--output", "older"],
    "check": ["check", NETWORK, "--data", "nowhere.npz", "--output", "older-folder"],
    "check --low": ["check", NETWORK, "--data", "digits", "--low", "1", "--high", "0"],
    "benchmark": [
        *("benchmark", NETWORK, "--train", "digits", "--test", "digits", "--monitor", "Nonsense"),
        *("--checkpoint", "cells", "--readouts", "rows", "--output", "older"),
    ],
    "mira": ["mira", NETWORK, "--train", "nowhere.npz", "--test", "digits", "--output", "older"],
    "merge": ["merge", "nowhere", "--output", "older"],
    "report": ["report", "nowhere", "--output", "older"],
    "reshape": ["reshape", "nowhere", "nowhere", "--output", "older"],
    "sample": ["sample", "nowhere:function", "--shape", "3", "--output", "older"],
    "precision": ["precision", "nowhere", "labels", "--output", "older"],
}


@pytest.mark.parametrize("command", FAILING)
def test_after_status_2_nothing_new_is_there_and_what_is_older_is_called_so(
    monkeypatch, capsys, tmp_path, command
):
    monkeypatch.chdir(tmp_path)
    said = refused(monkeypatch, capsys, FAILING[command])
    assert "earlier" not in said
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "older").write_text("from last week")
    (tmp_path / "older-folder").mkdir()
    (tmp_path / "older-folder" / "report.html").write_text("from last week")
    before = sorted(tmp_path.rglob("*"))
    older = next((word for word in FAILING[command] if word.startswith("older")), None)
    said = refused(monkeypatch, capsys, FAILING[command])
    if older:
        assert said.endswith(f"; {older} is from an earlier run and was left as it was")
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "older").read_text() == "from last week"


def test_a_check_that_fails_while_it_writes_leaves_the_earlier_one_whole(monkeypatch, capsys, tmp_path):
    class Unsaved:
        guard = watch = passed = None

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(assay, "check_network", lambda *_, **__: Unsaved())
    monkeypatch.setattr(assay, "save", lambda _, path: path.write_text("new"))
    (tmp_path / "assay-check").mkdir()
    (tmp_path / "assay-check" / "check.safetensors").write_text("old")
    said = refused(monkeypatch, capsys, ["check", NETWORK, "--data", "digits"])
    assert said.count("assay-check is from an earlier run and was left as it was") == 1
    assert [path.read_text() for path in tmp_path.rglob("*") if path.is_file()] == ["old"]


def test_what_could_not_be_decided_says_too_what_is_older(monkeypatch, capsys, tmp_path):
    def undecided(output):
        raise typer.Exit(3)

    undecided.__signature__ = inspect.Signature(
        [inspect.Parameter("output", inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[Path, Written()])]
    )
    (tmp_path / "result").write_text("old")
    with pytest.raises(typer.Exit):
        with_places(undecided)(output=tmp_path / "result")
    assert "result is from an earlier run" in capsys.readouterr().err


@pytest.mark.parametrize("command", sorted(WRITING))
def test_a_negative_seed_is_one_sentence(monkeypatch, capsys, tmp_path, command):
    monkeypatch.chdir(tmp_path)
    name = WRITING[command][0]
    callback = next(c.callback for c in app.registered_commands if c.callback.__name__ == name)
    if "seed" in inspect.signature(callback).parameters:
        said = refused(monkeypatch, capsys, [*WRITING[command], "x.svg", "--seed", "-1"])
        assert said.startswith("Invalid value for '--seed': expected 0 or more, got -1; see ")
