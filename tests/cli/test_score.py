"""`assay score`: the table is what the guard says in memory, row by row, however it is read and written."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import assay
from assay.cli import app
from assay.errors import InputError

FACTORY = """
import torch

def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("score")
    (folder / "four_values.py").write_text(FACTORY)
    scope = {}
    exec(FACTORY, scope)
    network = assay.Network(scope["network"]())
    draws = torch.Generator().manual_seed(1)
    train, inputs = torch.randn(200, 4, generator=draws), 1.5 * torch.randn(70, 4, generator=draws)
    clean = network.observe(train)
    guard = assay.Guard(network, assay.monitors.KNN(k=5).fit(clean)).calibrate(clean, 0.1)
    assay.save(guard, folder / "guard.safetensors")
    assay.save(assay.Guard(network, assay.monitors.MaxSoftmax()), folder / "undecided.safetensors")
    np.savez(folder / "new.npz", x=inputs)
    np.savez(folder / "labelled.npz", x=inputs, y=np.zeros(len(inputs), dtype=np.int64))
    np.savez(folder / "empty.npz", x=inputs[:0])
    (folder / "parts").mkdir()
    for number, part in enumerate(inputs.split(30)):
        np.savez(folder / "parts" / f"{number}.npz", x=part)
    verdict = guard(inputs).to_frame()
    verdict.insert(0, "input", range(len(inputs)))
    verdict.to_csv(folder / "expected.csv", index=False)
    return folder


@pytest.fixture
def run(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)

    def invoke(*arguments, guard="guard.safetensors"):
        return CliRunner().invoke(app, ["score", guard, "four_values:network", *arguments])

    return invoke


@pytest.mark.parametrize("data", ["new.npz", "labelled.npz", "parts"])
@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_the_table_is_what_the_guard_says(run, tmp_path, data, ending):
    path = tmp_path / f"verdicts{ending}"
    result = run("--data", data, "--output", str(path), "--batch-size", "16", "--json")
    assert result.exit_code == 0, result.output
    found = pd.read_csv(path) if ending == ".csv" else pd.read_parquet(path)
    expected = pd.read_csv("expected.csv")
    assert found["input"].tolist() == list(range(70))
    assert found["prediction"].tolist() == expected["prediction"].tolist()
    assert found["alarm"].tolist() == expected["alarm"].tolist()
    np.testing.assert_allclose(found["score"], expected["score"], rtol=1e-5)  # batches round differently
    facts = json.loads(result.stdout)
    assert (facts["rows"], facts["alarms"]) == (70, int(expected["alarm"].sum()))
    assert facts["lower"] < facts["share"] < facts["upper"]


def test_the_gate_on_alarms_decides_the_status(run, tmp_path):
    given = ("--data", "new.npz", "--output", str(tmp_path / "v.csv"))
    share = json.loads(run(*given, "--json").stdout)
    for most, status in ((share["upper"] + 0.01, 0), (share["share"], 3), (share["lower"] - 0.01, 1)):
        result = run(*given, "--most-alarms", f"{most:.6f}")
        assert result.exit_code == status, result.output
        assert ("the share of alarms lies between" in result.stderr) == (status > 0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--data", "new.npz", "--output", "v.json"), r"end in \.csv or \.parquet, got v\.json"),
        (("--data", "nowhere.npz", "--output", "v.csv"), "found none"),
        (("--data", "empty.npz", "--output", "v.csv"), "not empty"),
    ],
)
def test_what_cannot_be_scored_is_said_and_leaves_no_table(run, folder, arguments, words):
    with pytest.raises(InputError, match=words):
        raise run(*arguments).exception
    assert not (folder / "v.csv").exists()


def test_a_guard_without_a_threshold_is_refused_before_any_work(run):
    result = run("--data", "nowhere.npz", "--output", "v.csv", guard="undecided.safetensors")
    assert "calibrate" in str(result.exception)
