"""A check says what its parts say, decides its gates by their intervals, and speaks to pipelines."""

import json
from functools import partial
from xml.etree import ElementTree

import numpy as np
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
    detection = gates["detection (mean MCC)"]
    assert detection.measured == facts["specific_mcc"]
    assert detection.interval == (facts["specific_mcc_lower"], facts["specific_mcc_upper"])
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

    for low, high, gate in (
        (*found.monitorability.interval, partial(_mira_gate, found.monitorability, "")),
        (*found.benchmark.interval(found.benchmark.best), partial(_detection_gate, found.benchmark)),
    ):
        wanted = (low / 2, (low + high) / 2, 1.01 * high)
        assert [gate(least).passed for least in wanted] == [True, None, False]
    trace = assay.Trace(torch.eye(2).repeat(50, 1), labels=torch.tensor([0, 1] * 45 + [1, 0] * 5))
    assert _accuracy_gate(trace, None).passed is True  # 90 of 100; the interval is 82.6 to 94.5 %
    assert _accuracy_gate(trace, 0.9).passed is None
    assert _accuracy_gate(trace, 0.95).passed is False
    swapped = _accuracy_gate(assay.Trace(trace.logits, labels=1 - trace.labels), None)
    assert swapped.passed is False
    assert "in another order of the classes 90.0% instead of 10.0%" in swapped.words


def test_a_check_with_four_scenarios_can_pass_fail_and_be_undecided(network):
    """A signed-rank test over four scenarios has no p-value below 0.0625: nothing ever passed."""
    from assay.check.run import _detection_gate

    found = assay.check_network(
        network, assay.data.digits()[1], faults=("gaussian", "contrast"), low=0.0, high=1.0
    )
    detection = next(gate for gate in found.gates if gate.name.startswith("detection"))
    assert found.benchmark.table["scenario"].nunique() == 4
    assert detection.verdict == "passed"
    assert "the guard to ship" in detection.words
    low, high = detection.interval
    assert _detection_gate(found.benchmark, high + 0.01).verdict == "failed"
    straddling = _detection_gate(found.benchmark, (low + high) / 2)
    assert straddling.verdict == "undecided"
    assert "too few test inputs to tell" in straddling.words


def guard_of(calibrating):
    """Alarms where the largest of two logits is small; the network is not asked."""
    network = assay.Network(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)))
    return assay.Guard(network, assay.monitors.MaxLogit().fit(calibrating)).calibrate(calibrating)


def scored(scores):
    """A Trace whose MaxLogit scores are these numbers."""
    return assay.Trace(torch.tensor([[-score, -score - 1] for score in scores], dtype=torch.float64))


@pytest.mark.parametrize(("points", "tested"), [(90, 90), (400, 100), (100, 2000)])
def test_one_in_a_hundred_exchangeable_splits_has_more_false_alarms_than_chance_explains(points, tested):
    from assay.check.run import _most_by_chance

    guard = guard_of(scored(np.linspace(0, 1, points)))
    most, rank = _most_by_chance(guard, tested), guard.calibration["rank"]
    generator = np.random.default_rng(0)
    thresholds = np.sort(generator.random((20_000, points)), axis=1)[:, rank - 1]
    # Scores above a threshold are binomial given the threshold, whatever their distribution.
    alarms = generator.binomial(tested, 1 - thresholds)
    assert 0.003 < (alarms > most).mean() < 0.012
    assert (alarms >= most).mean() > 0.008


def test_false_alarms_accuse_given_test_data_and_never_the_checks_own_split():
    from assay.check.run import _false_alarm_gate

    guard = guard_of(scored(np.linspace(0, 1, 200)))
    odd = scored(np.linspace(0.5, 1.5, 100))
    theirs, ours = (_false_alarm_gate(guard, odd, own_split=own) for own in (False, True))
    assert theirs.passed is ours.passed is False
    assert "not like those" in theirs.words
    assert "not like those" not in ours.words
    assert "another seed" in ours.words
    fine = _false_alarm_gate(guard, scored(np.linspace(0, 1, 100)), own_split=False)
    assert fine.passed is True
    assert fine.measured <= fine.limit


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
        ({"least_mcc": float("nan")}, "least_mcc as a number from -1 to 1, got nan"),
        ({"least_mcc": 5.0}, "least_mcc"),
        ({"least_mira": float("inf")}, "least_mira"),
        ({"least_accuracy": -0.1}, "least_accuracy"),
        ({"false_alarm_rate": float("nan")}, "false_alarm_rate"),
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


def test_data_is_not_tested_on_itself_and_labels_are_classes(network):
    inputs, labels = assay.data.digits()[1]
    with pytest.raises(assay.AssayError, match="test with rows of its own, got those of data"):
        assay.check_network(network, (inputs, labels), test=(inputs, labels))
    for wrong in (99, -100):
        changed = labels.clone()
        changed[3] = wrong
        with pytest.raises(assay.AssayError, match="expected labels from 0 to 9"):
            assay.check_network(network, (inputs, changed))


def test_a_layer_wider_than_the_data_is_measured_with_a_shrunk_covariance(network):
    from assay.check.run import _estimator

    for rows, estimator in ((200, "ledoit_wolf"), (1000, "empirical")):
        trace = assay.Trace(torch.zeros(rows, 2), {"penultimate": torch.zeros(rows, 128)})
        assert _estimator(trace) == estimator


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
