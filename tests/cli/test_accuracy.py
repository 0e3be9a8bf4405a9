"""`assay accuracy` as a pipeline meets it: statuses, files, a few labels, windows, a fleet."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import assay
from assay.cli import app

MODULE = """
import torch
from torch import nn


def network(scale=3.0):
    module = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3))
    with torch.no_grad():
        module[0].weight.copy_(torch.eye(4))
        module[2].weight.copy_(scale * torch.eye(3, 4))
        for layer in (module[0], module[2]):
            layer.bias.zero_()
    return module


def another():
    return network(4.0)
"""
NETWORK = ("--network", "corners:network")


def rows(count, seed, noise=0.9):
    """Rows of three classes around three corners, and their classes."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(3, size=count)
    inputs = 2.0 * np.eye(4)[labels] + noise * generator.normal(size=(count, 4))
    return inputs.astype(np.float32), labels


def probabilities(inputs):
    return torch.softmax(3 * torch.relu(torch.from_numpy(inputs))[:, :3], dim=1).double().numpy()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Data, predictions and a taught estimator, which tests may read and must not change."""
    place = tmp_path_factory.mktemp("accuracy")
    (place / "corners.py").write_text(MODULE)
    for name, seed, noise in (("reference", 0, 0.9), ("live", 1, 0.9), ("noisy", 2, 2.5)):
        inputs, labels = rows(300, seed, noise)
        known = {"labels": labels} if name == "reference" else {}
        np.savez(place / f"{name}.npz", inputs=inputs, **known)
        frame = pd.DataFrame(probabilities(inputs), columns=["cat", "dog", "cow"])
        frame.assign(**{"label": labels} if known else {}).to_csv(place / f"{name}.csv", index=False)
    np.save(place / "truth.npy", rows(300, 2, 2.5)[1])
    return place


@pytest.fixture
def run(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    return lambda *arguments: CliRunner().invoke(app, ["accuracy", *map(str, arguments)])


@pytest.fixture
def taught(run, folder):
    """The file of an estimator; made once, by the command itself."""
    path = folder / "estimator.safetensors"
    if not path.exists():
        made = run("live.npz", "--reference", "reference.npz", *NETWORK, "--estimator", path)
        assert made.exit_code == 0, made.output
    return path


def test_it_holds_it_has_fallen_it_cannot_be_told(run, taught, tmp_path):
    holds = run("live.npz", *NETWORK, "--estimator", taught)
    assert holds.exit_code == 0, holds.output
    assert "Accuracy is not shown to have fallen" in holds.output
    fallen = run("noisy.npz", *NETWORK, "--estimator", taught, "--json")
    facts = json.loads(fallen.output)
    assert fallen.exit_code == {"has fallen": 1, "cannot tell": 3}[facts["verdict"]]
    np.savez(tmp_path / "stuck.npz", inputs=np.repeat(rows(1, 3)[0], 100, axis=0))
    stuck = run(tmp_path / "stuck.npz", *NETWORK, "--estimator", taught, "--json")
    assert stuck.exit_code == 3
    facts = json.loads(stuck.output)
    assert facts["value"] is None
    assert "repeat the row before" in facts["reason"]


def test_the_answer_is_that_of_python(run, folder, taught):
    found = json.loads(run("live.npz", *NETWORK, "--estimator", taught, "--json", "--level", 0.9).output)
    import corners

    network = assay.Network(corners.network())
    estimator = assay.AccuracyEstimator().fit(assay.data.read(folder / "reference.npz"), network=network)
    trace = network.observe(torch.from_numpy(rows(300, 1)[0]), keep_inputs=True)
    expected = estimator.estimate(estimator.count(trace), level=0.9)
    assert [found[name] for name in ("value", "lower", "upper")] == pytest.approx(
        [expected.value, expected.lower, expected.upper]
    )
    assert found["verdict"] == expected.verdict
    assert len(found["methods"]) == len(expected.estimates)


def test_gates_decide_by_the_interval(run, taught):
    facts = json.loads(run("live.npz", *NETWORK, "--estimator", taught, "--json").output)
    inside = (facts["lower"] + facts["upper"]) / 2
    for least, status in ((facts["lower"] - 0.01, 0), (inside, 3), (min(1.0, facts["upper"] + 0.01), 1)):
        result = run("live.npz", *NETWORK, "--estimator", taught, "--least", least)
        assert result.exit_code == (status if facts["upper"] < 1 or status != 1 else 3), result.output


def test_windows_give_a_history_a_picture_and_a_report(run, taught, tmp_path):
    files = {
        "--report": tmp_path / "report.html",
        "--plot": tmp_path / "plot.svg",
        "--output": tmp_path / "r",
    }
    options = [part for pair in files.items() for part in pair]
    result = run("live.npz", *NETWORK, "--estimator", taught, "--window", 70, "--json", *options)
    facts = json.loads(result.stdout)
    assert [window["row"] for window in facts["windows"]] == [70, 140, 210, 280]
    assert facts["windows"][-1]["verdict"] == facts["verdict"]
    assert facts["rows"] == 70
    assert "the last 20 rows fill no window" in result.output
    page = files["--report"].read_text()
    assert page.index("Accuracy over time") < page.index("Methods on the last window")
    assert "<svg" in files["--plot"].read_text()
    assert assay.load(files["--output"]).rows == 70
    few = run("live.npz", *NETWORK, "--estimator", taught, "--window", 500)
    assert few.exit_code != 0
    assert "at least one window of 500 live rows, got 300" in str(few.exception)


def test_saved_predictions_need_no_network(run, tmp_path):
    result = run("live.csv", "--reference", "reference.csv", "--report", tmp_path / "report.html", "--json")
    facts = json.loads(result.output)
    assert result.exit_code == {"holds": 0, "has fallen": 1, "cannot tell": 3}[facts["verdict"]]
    assert facts["reference_accuracy"] == pytest.approx(
        (probabilities(rows(300, 0)[0]).argmax(axis=1) == rows(300, 0)[1]).mean()
    )
    assert "Accuracy without labels" in (tmp_path / "report.html").read_text()
    trace = assay.Trace.from_probabilities(probabilities(rows(300, 1)[0]))
    assay.save(trace, tmp_path / "live.safetensors")
    again = json.loads(run(tmp_path / "live.safetensors", "--reference", "reference.csv", "--json").output)
    assert again["verdict"] == facts["verdict"]
    swapped = pd.read_csv("live.csv")[["dog", "cat", "cow"]]
    swapped.to_csv(tmp_path / "swapped.csv", index=False)
    wrong = run(tmp_path / "swapped.csv", "--reference", "reference.csv")
    assert "in its order" in str(wrong.exception)


@pytest.mark.parametrize("names", [False, True])
def test_rows_to_label_come_back_as_labels(run, taught, tmp_path, names):
    source, more = (
        ("noisy.csv", ("--reference", "reference.csv"))
        if names
        else (
            "noisy.npz",
            (*NETWORK, "--estimator", taught),
        )
    )
    network = () if names else NETWORK
    drawn = run(source, *network, "--to-label", 40, "--output", tmp_path / "rows.csv")
    assert drawn.exit_code == 0, drawn.output
    table = pd.read_csv(tmp_path / "rows.csv")
    assert list(table.columns) == ["row", "of", "probability", "guess", "label"]
    assert len(table) == 40
    assert table["label"].isna().all()
    empty = run(source, *more, "--labels", tmp_path / "rows.csv")
    assert "expected a label for each of 40 rows that were drawn, got 0" in str(empty.exception)
    truth = np.load("truth.npy")[table["row"]]
    table["label"] = np.array(["cat", "dog", "cow"])[truth] if names else truth
    table.to_csv(tmp_path / "rows.csv", index=False)
    facts = json.loads(run(source, *more, "--labels", tmp_path / "rows.csv", "--json").output)
    assert facts["labelled_rows"] == 40
    assert facts["lower"] <= facts["value"] <= facts["upper"]
    actual = (probabilities(rows(300, 2, 2.5)[0]).argmax(axis=1) == np.load("truth.npy")).mean()
    assert facts["lower"] <= actual <= facts["upper"]


def test_counts_of_devices_are_answered_by_the_estimator_that_made_them(run, taught, tmp_path):
    import corners

    network = assay.Network(corners.network())
    estimator = assay.load(taught)
    clean = network.observe(torch.from_numpy(rows(200, 5)[0]))
    guard = assay.Guard(network, assay.monitors.Energy().fit(clean)).calibrate(clean)
    for number in range(2):
        watched = assay.Watch(guard, estimator=estimator, window=100)
        watched(torch.from_numpy(rows(200, 6 + number)[0]))
        watched.keep(tmp_path / f"device-{number}.safetensors")
    devices = [str(tmp_path / f"device-{number}.safetensors") for number in range(2)]
    fleet = tmp_path / "fleet.safetensors"
    merged = CliRunner().invoke(app, ["merge", "--accuracy", *devices, "--output", str(fleet)])
    assert merged.exit_code == 0, merged.output
    facts = json.loads(run(fleet, "--estimator", taught, "--json").output)
    assert facts["rows"] == 400
    assert json.loads(run(devices[0], "--estimator", taught, "--json").output)["rows"] == 200
    assert "counts have no rows" in str(run(fleet, "--estimator", taught, "--window", 5).exception)
    bare = assay.Watch(guard)
    bare.keep(tmp_path / "bare.safetensors")
    assert "got none" in str(run(tmp_path / "bare.safetensors", "--estimator", taught).exception)


BAD = {
    "nothing to learn from": (("live.npz", *NETWORK), "expected --reference"),
    "a missing estimator": (
        ("live.npz", *NETWORK, "--estimator", "none.safetensors"),
        "expected --reference",
    ),
    "labels and windows": (
        ("live.csv", "--reference", "reference.csv", "--labels", "rows.csv", "--window", 50),
        "expected --labels or --window",
    ),
    "lessons of no network": (
        ("live.csv", "--reference", "reference.csv", "--folder", "lessons"),
        "expected --network beside --folder",
    ),
    "a reference without labels": (
        ("live.csv", "--reference", "noisy.csv"),
        "expected a reference with labels",
    ),
    "an unlabelled reference of data": (("live.npz", *NETWORK, "--reference", "noisy.npz"), "labels"),
    "options of data": (("live.csv?size=3", "--reference", "reference.csv"), "options of saved predictions"),
    "no place for rows": (("live.csv", "--to-label", 5), "expected --output"),
    "too many rows": (("live.csv", "--to-label", 5000, "--output", "x.csv"), "budget of 1 to 300 rows"),
    "a level": (("live.csv", "--reference", "reference.csv", "--level", 2), "level"),
}


@pytest.mark.parametrize(("arguments", "words"), BAD.values(), ids=BAD)
def test_bad_use_is_said_in_one_sentence(run, arguments, words):
    result = run(*arguments)
    assert result.exit_code != 0
    assert words in str(result.exception)


WRONG_LABELS = {
    "no columns": ("a,b\n1,2\n", "columns called row and label"),
    "names of nothing": ("row,label\n3,horse\n", "expected class numbers in the column label"),
    "half rows": ("row,label\n3.5,1\n", "whole numbers in the column row"),
    "words for rows": ("row,label\nfirst,1\n", "expected numbers in the columns"),
    "other rows": ("row,label\n3000,1\n", "rows 0 to 299"),
    "another set": ("row,of,probability,label\n3,77,0.5,1\n", "rows drawn from 77"),
    "no chance": ("row,of,probability,label\n3,300,0,1\n", "probabilities above 0"),
    "no such class": ("row,label\n3,7\n", "labels from 0 to 2"),
}


@pytest.mark.parametrize(("text", "words"), WRONG_LABELS.values(), ids=WRONG_LABELS)
def test_bad_labels_are_said_in_one_sentence(run, taught, tmp_path, text, words):
    (tmp_path / "labels.csv").write_text(text)
    result = run("live.npz", *NETWORK, "--estimator", taught, "--labels", tmp_path / "labels.csv")
    assert words in str(result.exception)


def test_an_estimator_is_never_taken_for_anothers(run, taught):
    other = run("live.npz", "--network", "corners:another", "--estimator", taught)
    assert "learned from others" in str(other.exception)
    elsewhere = run("live.csv", "--reference", "reference.csv", "--estimator", taught)
    assert "learned from others" in str(elsewhere.exception)
    same = run("live.npz", "--reference", "reference.npz", *NETWORK, "--estimator", taught)
    assert same.exit_code == 0
