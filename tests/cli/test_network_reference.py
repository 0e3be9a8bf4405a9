"""Networks named on the command line, with what their outputs are."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import assay
from assay.cli import app
from assay.cli.network_reference import network_at
from assay.errors import AssayWarning, InputError

NETWORKS = """
import assay
import torch

def build(*last):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 4), *last)

def softmax():
    return build(torch.nn.Softmax(dim=1))

def sigmoids():
    return build(torch.nn.Sigmoid())

class Pair(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = build()

    def forward(self, x):
        return x, self.inner(x)

def whole():
    return assay.Network(softmax(), outputs="probabilities")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("shipped_networks.py").write_text(NETWORKS)
    yield
    sys.modules.pop("shipped_networks", None)


@pytest.fixture
def rows():
    return 2 * torch.randn(40, 3, generator=torch.Generator().manual_seed(0))


def test_options_follow_the_name(rows):
    plain = network_at("shipped_networks:build").observe(rows)
    stated = network_at("shipped_networks:softmax?outputs=probabilities").observe(rows)
    torch.testing.assert_close(stated.probabilities, plain.probabilities, rtol=1e-5, atol=1e-6)
    label = network_at("shipped_networks:sigmoids?outputs=probabilities&label=2&layers=none").observe(rows)
    torch.testing.assert_close(label.logits[:, 1], plain.logits[:, 2], rtol=1e-4, atol=1e-4)
    assert label.features == {}
    assert torch.equal(network_at("shipped_networks:Pair?output=1").observe(rows).logits, plain.logits)
    assert network_at("shipped_networks:build?layers=0,penultimate").layers == ("0", "penultimate")


def test_options_that_cannot_be_meant_are_refused():
    with pytest.raises(
        InputError, match=r"of a network \(label, layers, output, outputs, scale\), got \['x'\]"
    ):
        network_at("shipped_networks:softmax?x=1")
    with pytest.raises(InputError, match="number of an output, got 'cat'"):
        network_at("shipped_networks:softmax?label=cat")
    with pytest.raises(InputError, match="state them in its factory"):
        network_at("shipped_networks:whole?outputs=logits")
    assert network_at("shipped_networks:whole").outputs == "probabilities"


def test_onnx_files_take_them_too(rows):
    network = network_at("shipped_networks:softmax")
    with pytest.warns(AssayWarning):
        seen = network.observe(rows)
    guard = assay.Guard(network, assay.monitors.MaxSoftmax().fit(seen)).calibrate(seen, 0.1)
    guard.export("net.onnx")
    for reference in ("net.onnx?output=logits&layers=none", "net.onnx"):
        assert torch.allclose(network_at(reference).observe(rows).logits, seen.logits, atol=1e-4)


def test_what_was_recognised_is_a_note_on_one_line(rows):
    np.savez("rows.npz", inputs=rows.numpy(), labels=np.zeros(40, int))
    arguments = ["observe", "shipped_networks:softmax", "--data", "rows.npz", "--json"]
    run = subprocess.run(
        [sys.executable, "-m", "assay", *arguments], capture_output=True, text=True, check=True
    )
    assert run.stderr.count("\n") == 1
    assert run.stderr.startswith("note: Sequential returns probabilities (rows that add up to 1)")
    arguments[1] += "?outputs=probabilities"
    stated = CliRunner().invoke(app, arguments)
    assert json.loads(run.stdout) == json.loads(stated.stdout)


def test_a_name_that_is_nearly_right_is_put_right(tmp_path, monkeypatch):
    (tmp_path / "nearly_models.py").write_text("def network():\n    return None\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match="did you mean nearly_models:network\\?"):
        network_at("nearly_models:networks")
    with pytest.raises(InputError, match="found none; check the name"):
        network_at("nearly_models:other")
