"""A check says what its parts say, decides its gates by their intervals, and speaks to pipelines."""

import json
from xml.etree import ElementTree

import pytest
import torch
from typer.testing import CliRunner

import assay
from assay.cli import app
from assay.demo.networks import small_cnn, trained

FAULTS = ("gaussian", "contrast", "pixel_trap", "dead_rows", "fgsm")

GUESSING = """
import torch
from assay.demo.networks import small_cnn

def network():
    torch.manual_seed(0)
    return small_cnn()
"""


@pytest.fixture(scope="module")
def network():
    return assay.Network(trained(small_cnn, assay.data.digits()[0]))


@pytest.fixture(scope="module")
def found(network):
    return assay.check_network(network, assay.data.digits()[1], faults=FAULTS, low=0.0, high=1.0)


def test_each_gate_is_what_its_part_measured(found, network):
    gates = {gate.name: gate for gate in found.gates}
    facts = found.benchmark.by_guard().set_index("guard").loc[found.benchmark.best]
    assert gates["detection (mean MCC)"].measured == facts["specific_mcc"]
    assert gates["monitorability (MIRA)"].measured == found.monitorability.score
    assert found.guard.monitor is not None
    assert gates["accuracy"].passed is True
    assert gates["accuracy"].measured > 0.9
    assert found.passed is True
    assert found.watch.window == len(assay.data.digits()[1].labels) // 5 // 2
    for gate in found.gates:
        assert gate.words in found.summary()


def test_a_gate_beyond_reach_fails_the_check(found):
    from assay.check.run import _accuracy_gate, _detection_gate, _mira_gate

    assert _detection_gate(found.benchmark, 0.99).passed is False
    low, high = found.monitorability.interval
    assert [
        _mira_gate(found.monitorability, "", least).passed for least in (low / 2, (low + high) / 2, high)
    ] == [
        True,
        None,
        False,
    ]
    trace = assay.Trace(torch.eye(2).repeat(50, 1), labels=torch.tensor([0, 1] * 45 + [1, 0] * 5))
    assert _accuracy_gate(trace, None).passed is True  # 90 of 100; the interval is 82.6 to 94.5 %
    assert _accuracy_gate(trace, 0.9).passed is None
    assert _accuracy_gate(trace, 0.95).passed is False


def test_a_black_box_leaves_monitorability_undecided(network):
    class Box(torch.nn.Module):
        differentiable = False

        def __init__(self):
            super().__init__()
            self.inner = network.module

        def forward(self, inputs):
            return self.inner(inputs)

    found = assay.check_network(assay.Network(Box()), assay.data.digits()[1], faults=("gaussian",))
    assert found.monitorability is None
    assert found.passed is not True
    mira = next(gate for gate in found.gates if gate.name.startswith("monitorability"))
    assert mira.passed is None
    assert "gradients" in mira.words
    case = ElementTree.fromstring(assay.check.junit(found)).find(
        "./testcase[@name='monitorability (MIRA)']/error"
    )
    assert case is not None
    assert "gradients" in case.get("message")


def test_a_check_is_saved_whole_with_its_guard(found, network, tmp_path):
    assay.save(found, tmp_path / "check.safetensors")
    again = assay.load(tmp_path / "check.safetensors", network=network)
    assert again.to_frame().equals(found.to_frame())
    inputs = assay.data.digits()[1].inputs[:5]
    assert torch.equal(again.guard(inputs).scores, found.guard(inputs).scores)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (torch.zeros(300, 1, 8, 8), "without labels"),
        ((torch.zeros(20, 1, 8, 8), torch.zeros(20, dtype=torch.long)), "at least 200 inputs"),
        ((torch.zeros(300, 1, 8, 8), torch.zeros(20, dtype=torch.long)), "300 inputs and 20 labels"),
        ((torch.zeros(300, 1, 8, 8), torch.full((300,), 0.5)), "whole class numbers, got 0.5"),
        ((torch.zeros(300, 1, 8, 8), torch.zeros(300, 10)), "one-hot"),
    ],
)
def test_data_that_cannot_be_checked_is_refused_in_a_sentence(network, data, words):
    with pytest.raises(assay.AssayError, match=words):
        assay.check_network(network, data)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"low": 1.0, "high": 0.0}, "low below high, got 1.0 and 0.0"),
        ({"low": float("nan")}, "low below high, got nan"),
        ({"accuracy_threshold": 2.0}, "accuracy_threshold between 0 and 1"),
        ({"faults": ["rain of frogs"]}, "rain of frogs"),
    ],
)
def test_settings_that_make_no_sense_are_refused_before_any_work(network, monkeypatch, options, words):
    monkeypatch.setattr(assay.monitors.Monitor, "fit", lambda *_: pytest.fail("a monitor was fitted"))
    with pytest.raises(assay.AssayError, match=words):
        assay.check_network(network, assay.data.digits()[1], **options)


def test_a_network_that_watches_no_layer_cannot_be_checked(network):
    with pytest.raises(assay.AssayError, match="layers='penultimate'"):
        assay.check_network(assay.Network(network.module, layers=()), assay.data.digits()[1])


def test_the_command_writes_report_guard_and_junit_and_its_status_is_the_verdict(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "guessing.py").write_text(GUESSING)
    arguments = ["check", "guessing:network", "--data", "digits", "--json", "--junit", "check.xml"]
    arguments += [word for fault in ("gaussian", "contrast") for word in ("--fault", fault)]
    result = CliRunner().invoke(app, arguments)
    said = json.loads(result.output)
    # An untrained network guesses, and that is a failed gate, not an error.
    assert result.exit_code == 1
    assert said["passed"] is False
    assert {gate["gate"]: gate["verdict"] for gate in said["gates"]}["accuracy"] != "passed"
    suite = ElementTree.parse("check.xml").getroot()
    assert int(suite.get("failures")) >= 1
    assert {path.name for path in (tmp_path / "assay-check").iterdir()} == {
        *("check.safetensors", "guard.safetensors", "watch.safetensors", "report.html")
    }
    page = CliRunner().invoke(
        app, ["report", "assay-check/check.safetensors", "--network", "guessing:network"]
    )
    assert page.exit_code == 0, page.output
    assert "Is this network fit to ship?" in (tmp_path / "report.html").read_text()
