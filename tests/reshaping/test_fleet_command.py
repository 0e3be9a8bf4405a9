"""`assay fleet` from files to exit status."""

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import assay
from assay import Bins, Histogram, Trace
from assay.cli import app


def seen(count, hard_share, strength, seed):
    """Two classes on one neuron, whose values a condition moves; most answers to the second are wrong."""
    rng = np.random.default_rng(seed)
    labels = (rng.random(count) < hard_share).astype(int)
    values = 4.0 * labels + 2 * rng.random(count) + strength
    wrong = rng.random(count) < np.where(labels == 1, 0.7, 0.05)
    logits = np.eye(2)[labels ^ wrong] * np.where(wrong, 1.0, 4.0)[:, None]
    return Trace(torch.tensor(logits), {"penultimate": torch.tensor(values)[:, None]}, torch.tensor(labels))


@pytest.fixture
def folder(tmp_path):
    clean, fog = seen(400, 0.5, 0.0, 0), seen(400, 0.5, 0.5, 1)
    bins = Bins(last=11).with_predictions(Trace.concatenate([clean, fog]), 3)
    assay.save(clean, tmp_path / "clean.trace")
    assay.save(fog, tmp_path / "fog.trace")
    for name, share in (("good", 0.05), ("bad", 0.95)):
        assay.save(Histogram.of(seen(200, share, 0.0, 7), bins), tmp_path / f"{name}.hist")
    strange = seen(200, 0.5, 5.0, 8)
    assay.save(Histogram.of(strange, bins), tmp_path / "strange.hist")
    return tmp_path


def run(folder, *arguments):
    home = ("--home", folder / "clean.trace", "--home", folder / "fog.trace")
    return CliRunner().invoke(app, ["fleet", *(str(part) for part in (*arguments, *home))])


def test_the_worst_device_comes_first_and_fails_the_target(folder):
    both = folder / "good.hist", folder / "bad.hist"
    done = run(
        folder, *both, "--target", "0.6", "--json", "--output", folder / "out", "--plot", folder / "p.png"
    )
    assert done.exit_code == 1
    devices = json.loads(done.stdout)["devices"]
    assert [device["device"] for device in devices] == [str(folder / "bad.hist"), str(folder / "good.hist")]
    assert [device["below"] for device in devices] == [True, False]
    assert assay.load(folder / "out").target == 0.6
    assert (folder / "p.png").stat().st_size > 1000
    fine = run(folder, folder / "good.hist", "--target", "0.6")
    assert fine.exit_code == 0
    assert "0 are below the target" in fine.stdout


def test_a_device_unlike_home_is_not_decided(folder):
    done = run(folder, folder / "strange.hist")
    assert done.exit_code == 3
    assert "unlike anything at home" in done.stdout


def test_what_is_no_histogram_is_refused(folder):
    assert isinstance(run(folder, folder / "clean.trace").exception, assay.AssayError)
    assert isinstance(run(folder, folder / "good.hist", folder / "good.hist").exception, assay.AssayError)
