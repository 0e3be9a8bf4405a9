"""`assay reshape` from files to exit status."""

import json

import pytest
import torch
from typer.testing import CliRunner

import assay
from assay import Bins, Histogram, Trace
from assay.cli import app
from assay.errors import MissingLabelsError, UndecidedError


def saved(folder, name, share, seed, count=600):
    """Two classes on one neuron; the second is recognised half of the time."""
    generator = torch.Generator().manual_seed(seed)
    labels = (torch.rand(count, generator=generator) < share).long()
    values = 3.0 * labels + torch.rand(count, generator=generator) * 2
    right = (labels == 0) | (torch.rand(count, generator=generator) < 0.5)
    logits = torch.nn.functional.one_hot(torch.where(right, labels, 1 - labels), 2).double()
    trace = Trace(logits, {"penultimate": values[:, None]}, labels)
    assay.save(trace, folder / name)
    return trace


@pytest.fixture
def folder(tmp_path):
    saved(tmp_path, "test.trace", 0.3, 0)
    outside = saved(tmp_path, "live.trace", 0.7, 1)
    for index, part in enumerate((outside[:200], outside[200:])):
        assay.save(Histogram.of(part, Bins(last=6)), tmp_path / f"{index}.hist")
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(app, ["reshape", *(str(argument) for argument in arguments)])


def test_histograms_of_two_devices_give_an_estimate(folder):
    done = run(
        folder / "test.trace", folder / "0.hist", folder / "1.hist", "--json", "--output", folder / "out"
    )
    assert done.exit_code == 0
    facts = json.loads(done.stdout)
    estimate = facts["estimates"][0]
    # Out there 0.3 + 0.7 / 2 = 0.65 are right, in the test set 0.7 + 0.3 / 2 = 0.85.
    assert estimate["lower"] < 0.65 < estimate["upper"]
    assert abs(estimate["unshaped"] - 0.85) < 0.03
    assert facts["kept"] == facts["bound"]
    assert assay.load(folder / "out").number_kept == facts["kept"]


def test_a_trace_is_counted_here_and_indicators_repeat(folder):
    done = run(
        folder / "test.trace", folder / "live.trace", "--indicator", "recall:1", "--indicator", "accuracy",
        "--plot", folder / "p.png",
    )  # fmt: skip
    assert done.exit_code == 0
    assert "recall of class 1" in done.stdout
    assert "accuracy" in done.stdout
    assert (folder / "p.png").stat().st_size > 1000


def test_the_gate_decides_the_exit_status(folder):
    arguments = (folder / "test.trace", folder / "live.trace", "--least-indicator")
    assert run(*arguments, "0.3").exit_code == 0
    assert run(*arguments, "0.9").exit_code == 1
    undecided = run(*arguments, "0.65")
    assert undecided.exit_code == 3
    assert "Cannot tell whether accuracy is at least 0.65" in undecided.stderr
    assert "cannot decide: the first indicator lies between" in undecided.stderr


def test_the_gate_rests_on_gamma(folder):
    arguments = (folder / "test.trace", folder / "live.trace", "--least-indicator", "0.5")
    passed = run(*arguments)
    assert passed.exit_code == 0
    assert "Accuracy stays above 0.5 unless errors within a class become" in passed.stderr
    assert run(*arguments, "--gamma", "3").exit_code == 3


def test_a_solver_out_of_time_is_undecided(folder, monkeypatch):
    def slow(*_, **__):
        raise UndecidedError("no subset was found within 1 s")

    monkeypatch.setattr(assay, "reshape", slow)
    done = run(folder / "test.trace", folder / "0.hist")
    assert done.exit_code == 3
    assert "no subset was found" in done.stdout
    gated = run(folder / "test.trace", folder / "0.hist", folder / "1.hist", "--least-indicator", "0.3")
    assert gated.exit_code == 0
    assert "only class frequencies" in gated.stdout


def test_counts_that_fit_no_class_frequencies_decide_nothing(folder):
    live = assay.load(folder / "live.trace")
    moved = Trace(live.logits, {"penultimate": live.layer("penultimate") * 0 + 2.5}, live.labels)
    assay.save(Histogram.of(moved, Bins(last=6)), folder / "moved.hist")
    done = run(folder / "test.trace", folder / "moved.hist", "--least-indicator", "0.3")
    assert done.exit_code == 3
    assert "do not fit a change of class frequencies" in done.stderr


@pytest.mark.parametrize("asked", [("--least-indicator", "0.9"), ("--indicator", "accuracy")])
def test_an_indicator_without_labels_is_refused_before_any_work(folder, asked, monkeypatch):
    labelled = assay.load(folder / "test.trace")
    assay.save(Trace(labelled.logits, labelled.features), folder / "unlabelled.trace")
    monkeypatch.setattr(assay, "reshape", None)
    done = run(folder / "unlabelled.trace", folder / "0.hist", *asked)
    assert isinstance(done.exception, MissingLabelsError)
    assert "without labels" in str(done.exception)


def test_what_cannot_match_cannot_be_decided(folder):
    test = assay.load(folder / "test.trace")
    assay.save(test[test.labels == 0], folder / "poor.trace")
    done = run(folder / "poor.trace", folder / "0.hist")
    assert done.exit_code == 3
    assert "is enough" in done.stdout or "no epsilon below" in done.stdout
    facts = json.loads(run(folder / "poor.trace", folder / "0.hist", "--json").stdout)
    assert facts["least_epsilon"] > 0.01


def test_wrong_use_is_refused(folder):
    assert isinstance(
        run(folder / "test.trace", folder / "0.hist", "--indicator", "luck").exception, assay.AssayError
    )
    both = run(folder / "test.trace", folder / "0.hist", folder / "live.trace")
    assert isinstance(both.exception, assay.AssayError)
