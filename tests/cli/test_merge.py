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
from assay.storage import stored_digest

BINS = Bins(width=0.5, last=9, overflow=True)


def trace(count, seed):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(count, 3, generator=generator)
    return Trace(torch.randn(count, 2, generator=generator), {"penultimate": features})


def guard():
    torch.manual_seed(0)
    network = Network(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2)))
    return Guard(network, Energy().fit(network.observe(torch.zeros(2, 3))), 0.0)


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
    watch = Watch(guard(), BINS)
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
    assay.save(assay.load("device-1.safetensors"), "saved-again")  # the order of its header may be another
    assay.save(trace(20, 5), "trace")
    for command in (["merge"], ["reshape", "trace"], ["fleet", "--home", "trace"]):
        for files in (
            ["device-1.safetensors"] * 2,
            ["device-1.safetensors", "device-0.safetensors", "copy"],
            ["device-1.safetensors", "saved-again"],
        ):
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


def test_files_come_as_folders_patterns_and_lists(folder):
    (folder / "sub").mkdir()
    assay.save(Histogram.of(trace(5, 7), BINS), "sub/device-3.safetensors")
    (folder / "sub" / ".device-4.half-written").write_bytes(b"nothing yet")
    (folder / "names.txt").write_text("device-0.safetensors\n\n  device-[12].safetensors\nsub\n")
    everything = run("@names.txt", "--output", "one").output
    assert everything.startswith("38 inputs of 4 files")
    (folder / "names.txt").unlink()
    (folder / "one").rename(folder.parent / "one")
    assert run(".", "--output", "two").output.startswith("38 inputs of 4 files")
    assert run(".", "--output", "two").output.startswith("38 inputs of 4 files")  # the old sum is no device
    assert run("*.safetensors", "sub", "--output", "../three").output.startswith("38 inputs")
    assert stored_digest(folder.parent / "one") == stored_digest("two") == stored_digest("../three")
    for given, reason in (("sub/none-*", "found none"), ("@gone.txt", "a text file of names at gone.txt")):
        result = run(given)
        assert isinstance(result.exception, assay.AssayError)
        assert reason in str(result.exception)


def test_the_sum_depends_on_neither_order_nor_names(tmp_path, monkeypatch):
    """To the bit, also for sums of fractions: files are added in the order of their contents."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("assay.cli.merge.PART", 4)
    reference = trace(60, 9)
    estimator = assay.AccuracyEstimator(window=20).fit(
        Trace(reference.logits, reference.features, reference.predictions)
    )
    counts = [estimator.count(trace(23, number)) for number in range(11)]
    for names in ([f"a{number}" for number in range(11)], [f"b{10 - number}" for number in range(11)]):
        for name, counted in zip(names, counts, strict=True):
            assay.save(counted, name)
    for start in ("a", "b"):
        order = sorted(tmp_path.glob(f"{start}*"), reverse=start == "b")
        result = run(*map(str, order), "--output", f"sum-{start}")
        assert result.exit_code == 0, result.output
    assert stored_digest("sum-a") == stored_digest("sum-b")
    exact = {name: sum(one.sums[name] for one in counts) for name in counts[0].sums}
    for name, value in assay.load("sum-a").sums.items():
        assert value == pytest.approx(exact[name], rel=1e-12)  # eleven roundings


def test_a_device_is_counted_once_whatever_its_file_is_called_and_whenever_it_was_written(folder):
    watch = Watch(guard(), BINS)
    watch(torch.ones(5, 3))
    watch.keep("monday")
    again = Watch(guard(), BINS)
    again.resume("monday")
    again(torch.ones(2, 3))
    again.keep("tuesday")
    result = run("monday", "tuesday")
    assert "two states of one in" in str(result.exception)
    assert {"monday", "tuesday"} <= set(str(result.exception).replace(";", "").split())
    other = Watch(guard(), BINS)
    other(torch.ones(5, 3))
    other.keep("other")
    assert "12 inputs of 2 files" in run("other", "tuesday").output


def test_devices_that_have_seen_nothing_are_alike_and_fine(folder):
    for name in ("idle-1", "idle-2"):
        assay.save(Histogram.of(trace(4, 0)[:0], BINS), name)
    assert "10 inputs of 3 files" in run("idle-1", "idle-2", "device-0.safetensors").output
    assert "once" in str(run("idle-1", "idle-1").exception)


def test_broken_files_are_all_named_and_left_out_only_if_asked(folder):
    for number in (0, 2):
        whole = (folder / f"device-{number}.safetensors").read_bytes()
        (folder / f"cut-{number}").write_bytes(whole[:-5])
    (folder / "note.txt").write_text("not a device")
    result = run(".", "--output", "../fleet")
    assert isinstance(result.exception, assay.AssayError)
    assert all(name in str(result.exception) for name in ("cut-0", "cut-2", "note.txt"))
    assert not (folder.parent / "fleet").exists()
    result = run(".", "--output", "../fleet", "--skip-broken", "--json")
    assert result.exit_code == 0
    told = json.loads(result.stdout)
    assert (told["files"], told["inputs"]) == (3, 33)
    assert told["broken"] == ["./cut-0", "./cut-2", "./note.txt"]
    assert "left out 3 files" in result.stderr
    assert "cut-0" in str(run("cut-0", "cut-2", "--skip-broken").exception)  # nothing is left
    assay.save(Histogram.of(trace(5, 0), Bins(width=1.0, overflow=True)), "wider")
    for path in folder.glob("cut-*"):
        path.unlink()
    (folder / "note.txt").unlink()
    result = run(".", "--skip-broken", "--output", "../other")  # whole files that do not fit are no accident
    assert "cannot be added" in str(result.exception)
