"""A check says what its parts say, decides its gates by their intervals, and speaks to pipelines."""

import json
from dataclasses import replace
from functools import partial
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import assay
from assay.check.proposed_guard import PROPOSED, rival
from assay.cli import app
from assay.demo.networks import small_cnn, trained
from assay.faults import BYTES, TOKENS
from assay.report import changes
from assay.storage import load_without_networks

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
    facts = found.benchmark.by_guard().set_index("guard").loc[PROPOSED]
    detection = gates["detection (mean MCC)"]
    assert detection.measured == facts["specific_mcc"]
    assert detection.interval == (facts["specific_mcc_lower"], facts["specific_mcc_upper"])
    assert gates["monitorability"].measured == found.monitorability.score
    assert gates["monitorability"].interval == (found.monitorability.lower, found.monitorability.upper)
    assert found.mira is None
    assert "MIRA score" not in gates
    assert found.guard.monitor is not None
    assert gates["accuracy"].passed is True
    assert gates["accuracy"].measured > 0.9
    assert found.passed is True
    assert found.watch.window == len(assay.data.digits()[1].labels) // 5 // 2
    for gate in found.gates:
        assert gate.words in found.summary()


def test_the_estimator_is_tried_on_every_scenario_whose_labels_are_known(found, network):
    trials = found.trials.to_frame().set_index("scenario")
    assert set(trials.index) == set(found.benchmark.table["scenario"])
    assert found.estimator.network_ == network.fingerprint
    assert trials.loc["gaussian (1)", "accuracy"] > 0.9
    told = trials[trials["verdict"] != "cannot tell"]
    assert 0 < len(told) <= len(trials)
    assert ((told["lower"] <= told["value"]) & (told["value"] <= told["upper"])).all()
    held = ((told["lower"] <= told["accuracy"]) & (told["accuracy"] <= told["upper"])).sum()
    assert f"held the truth in {held} of {len(told)}" in found.trials.summary()
    assert found.trials in found.parts()
    labels = found.trials.plot().axes[0].get_legend_handles_labels()[1]
    assert ("cannot tell" in labels) == (len(told) < len(trials))


def test_trials_about_which_nothing_can_be_told_say_so(found):
    table = found.trials.table.assign(verdict="cannot tell")
    assert '"cannot tell" on all' in replace(found.trials, table=table).summary()


def test_an_estimator_whose_intervals_seldom_hold_is_not_called_ready(found):
    told = found.trials.table.assign(verdict="holds", lower=0.4, value=0.5, upper=0.6)
    for share, ready in ((0.5, False), (0.95, True)):
        accuracy = np.where(np.arange(len(told)) < share * len(told), 0.5, 0.9)
        trials = replace(found.trials, table=told.assign(accuracy=accuracy))
        assert trials.ready is ready
        assert ("do not rely on its answers" in trials.summary()) is not ready
        assert ("--estimator" in trials.advice()) is ready


def test_the_banner_names_what_decided(found):
    first, *others = found.gates
    for passed, words in ((True, "Fit to ship: all"), (False, "accuracy failed"), (None, "on accuracy.")):
        verdict, sentence = replace(found, gates=(replace(first, passed=passed), *others)).banner()
        assert verdict is passed
        assert words in sentence


def test_a_saved_check_is_shown_without_its_network(found, tmp_path):
    """Two checks side by side are of two networks: a page needs neither."""
    path = tmp_path / "check.safetensors"
    assay.save(found, path)
    shown = load_without_networks(path)
    assert shown.guard is None
    assert shown.banner() == found.banner()
    assert [part.summary() for part in shown.parts()] == [part.summary() for part in found.parts()]
    assert changes(shown, shown).banner() == (None, "Nothing changed beyond chance.")
    assay.save(found.guard, path)
    refused = CliRunner().invoke(app, ["report", str(path), "--output", str(tmp_path / "report.html")])
    assert "expected a result" in str(refused.exception)


def test_without_teaching_there_is_no_estimator(found):
    bare = replace(found, estimator=None, trials=None)
    assert len(bare.parts()) == len(found.parts()) - 1


def test_a_gate_beyond_reach_fails_the_check(found):
    from assay.check.run import _accuracy_gate, _detection_gate, _monitorability_gate

    seen = found.monitorability
    for low, high, gate in (
        (seen.lower, seen.upper, partial(_monitorability_gate, seen, "")),
        (*found.benchmark.interval(PROPOSED), partial(_detection_gate, found.benchmark)),
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
        network, assay.data.digits()[1], faults=("gaussian", "contrast"), low=0.0, high=1.0, teach=False
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


def test_the_default_guard_is_proposed_beside_a_single_monitor_measured_on_the_other_half(found):
    assert found.guard.members == ("input", "neighbours", "classes", "output")
    table = found.benchmark.table
    # Five faults in three categories: gaussian | contrast | pixel_trap, dead_rows | fgsm, counted 0 to 4.
    choosing = table["scenario"].str.contains("gaussian|pixel_trap|fgsm")
    singles = table[choosing & (table["guard"] != PROPOSED)].groupby("guard")["specific_mcc"].mean()
    other = table[~choosing].groupby("guard")["specific_mcc"].mean()
    best = rival(found.benchmark)
    assert best.name == singles.idxmax()
    assert (best.mcc, best.proposed_mcc) == (other[best.name], other[PROPOSED])
    assert (best.scenarios, best.monitors) == (4, 5)
    detection = next(gate for gate in found.gates if gate.name.startswith("detection"))
    assert best.words in detection.words
    assert f"the default guard {best.proposed_mcc:.2f}" in best.words


def test_the_report_says_which_members_raised_the_alarms(found):
    shares = found.benchmark.by_reason()
    assert set(shares["guard"]) == {PROPOSED}
    members = shares[["input", "neighbours", "classes", "output"]]
    assert (members.sum(axis=1) <= 1 + 1e-9).all()
    assert members.to_numpy().sum() > 1
    assert f"Of the alarms of {PROPOSED} on faults, its members raised: " in found.benchmark.summary()


def test_a_single_fault_makes_no_halves_and_the_name_of_the_default_guard_is_its_own(network):
    data = assay.data.digits()[1]
    alone = assay.check_network(network, data, faults=("gaussian",), low=0.0, high=1.0)
    assert rival(alone.benchmark) is None
    with pytest.raises(assay.errors.InputError, match="candidates with other names"):
        assay.check_network(network, data, candidates={PROPOSED: assay.monitors.Energy()})


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


class Box(torch.nn.Module):
    """A module of which only outputs are known."""

    differentiable = False

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, inputs):
        return self.inner(inputs)


def test_what_needs_gradients_is_left_out_of_the_check_of_a_black_box(network, tmp_path):
    box = assay.Network(Box(network.module))
    candidates = {"softmax": assay.monitors.MaxSoftmax(), "odin": assay.monitors.ODIN(box)}
    data = assay.data.digits()[1]
    faults = ("gaussian", "fgsm", "random_sign")
    found = assay.check_network(box, data, faults=faults, candidates=candidates, teach=False)
    assert set(found.left_out) == {"odin", "fgsm"}
    assert all("without gradients" in reason for reason in found.left_out.values())
    assert found.monitorability.score > 0.6  # which needs no gradients
    names = ["accuracy", "monitorability", "detection (mean MCC)", "false alarms"]
    assert [gate.name for gate in found.gates] == names
    assert set(found.benchmark.table["scenario"]) >= {"gaussian (5)", "random_sign (5)"}
    missing = "Left out: odin, fgsm, since the network is a black box without gradients."
    assert missing in found.summary()
    suite = ElementTree.fromstring(assay.check.junit(found))
    assert suite.get("skipped") == "2"
    assert "gradients" in suite.find("./testcase[@name='fgsm']/skipped").get("message")
    assay.write_report([found], tmp_path / "report.html")
    assert missing in (tmp_path / "report.html").read_text()
    assay.save(found, tmp_path / "check.safetensors")
    assert assay.load(tmp_path / "check.safetensors", network=box).left_out == found.left_out


def test_a_gate_that_was_asked_for_is_undecided_where_it_cannot_be_measured(network):
    found = assay.check_network(
        assay.Network(Box(network.module)),
        assay.data.digits()[1],
        faults=("gaussian",),
        least_mira=0.0,
        teach=False,
    )
    mira = next(gate for gate in found.gates if gate.name == "MIRA score")
    assert mira.passed is None
    assert found.passed is None
    assert "gradients" in mira.words
    assert set(found.left_out) == {"fgsm"} or not found.left_out


def test_mira_is_measured_where_its_gate_is_asked_for(network):
    data = assay.data.digits()[1]
    found = assay.check_network(
        network, data, faults=("gaussian",), least_mira=-1, low=0.0, high=1.0, teach=False
    )
    gate = next(gate for gate in found.gates if gate.name == "MIRA score")
    assert gate.measured == found.mira.score
    assert gate.passed is True
    assert found.mira in found.parts()


def test_a_function_without_layers_is_checked_by_what_it_puts_out(network):
    def probabilities(images):
        return network.observe(torch.from_numpy(images)).probabilities.numpy()

    forest = assay.Network.from_function(probabilities, "forest-1")
    found = assay.check_network(forest, assay.data.digits()[1], faults=("gaussian", "contrast"))
    assert not found.left_out
    assert "whose energy is 0" in found.monitorability.left_out["Energy (output)"]
    assert {gate.verdict for gate in found.gates} == {"passed"}
    assert set(found.benchmark.guards) == {PROPOSED, "MaxSoftmax", "Entropy", "GEN", "KLMatching"}
    with_layers = {"knn": assay.monitors.KNN(), "softmax": assay.monitors.MaxSoftmax()}
    narrow = assay.check_network(
        forest, assay.data.digits()[1], faults=("gaussian",), candidates=with_layers, teach=False
    )
    assert narrow.left_out["knn"] == "the network has no layers that can be watched"
    with pytest.raises(assay.AssayError, match=r"expected a monitor that Network\.from_function"):
        assay.check_network(forest, assay.data.digits()[1], candidates={"knn": assay.monitors.KNN()})


def test_an_onnx_file_is_checked_with_its_layer(network, tmp_path):
    from assay.network.graph import traced

    path = tmp_path / "digits.onnx"
    graph = traced(network.module, [torch.zeros(2, 1, 8, 8)], ["images"], ["logits"])
    path.write_bytes(graph.SerializeToString())
    found = assay.check_network(
        assay.Network.from_onnx(path), assay.data.digits()[1], severities=(5,), teach=False
    )
    assert set(found.left_out) == {"fgsm"}
    assert "KNN" in found.benchmark.guards
    assert found.passed is True


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
        ({"least_monitorability": 2.0}, "least_monitorability"),
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
    changed = labels.clone()
    changed[3] = 99
    with pytest.raises(assay.AssayError, match="expected labels from 0 to 9"):
        assay.check_network(network, (inputs, changed))


def test_rows_to_be_ignored_are_left_out_with_their_number(network):
    inputs, labels = assay.data.digits()[1]
    marked = labels.clone()
    marked[:30] = -100
    found = assay.check_network(
        network, (inputs, marked[:, None].double()), faults=("gaussian",), teach=False
    )
    assert found.left_out == {"30 rows of data": "their label is -100, which is ignored"}
    assert (
        found.benchmark.table["inputs"].tolist() == [84] * 12
    )  # a fifth of 420, for six guards at two severities


def test_a_layer_wider_than_the_data_is_measured_with_a_shrunk_covariance(network):
    from assay.check.run import _estimator

    for rows, estimator in ((200, "ledoit_wolf"), (1000, "empirical")):
        trace = assay.Trace(torch.zeros(rows, 2), {"penultimate": torch.zeros(rows, 128)})
        assert _estimator(trace) == estimator


class Letters(torch.nn.Module):
    """Which of two halves of an alphabet of bytes, or tokens, a row is made of; exact, without training."""

    def __init__(self, values):
        super().__init__()
        self.letters = torch.nn.Embedding(values, 2, padding_idx=0)
        self.head = torch.nn.Linear(2, 2, bias=False)
        with torch.no_grad():
            upper = torch.arange(values) >= values // 2
            self.letters.weight.copy_(torch.stack([~upper, upper], dim=1))
            self.letters.weight[0] = 0
            self.head.weight.copy_(8 * torch.eye(2))

    def forward(self, input_ids, attention_mask=None):
        return self.head(self.letters(input_ids.long()).mean(dim=1))


def rows_of_letters(values, count=400):
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(count) % 2
    half = values // 2
    rows = torch.randint(1, half, (count, 24), generator=generator) + half * labels[:, None]
    return rows.masked_fill(torch.arange(24) >= 20, 0), labels


@pytest.mark.parametrize(
    ("values", "dtype", "faults", "expected"),
    [
        (
            256,
            torch.uint8,
            None,
            set(BYTES),
        ),
        (256, torch.int32, ("bit_flips",), {"bit_flips"}),
        (
            90,
            torch.int64,
            None,
            set(TOKENS),
        ),
    ],
)
def test_bytes_and_tokens_are_checked_with_faults_of_their_own(values, dtype, faults, expected):
    rows, labels = rows_of_letters(values)
    network = assay.Network(Letters(values))
    found = assay.check_network(network, (rows.to(dtype), labels), faults=faults)
    assert {name.partition(" (")[0] for name in found.benchmark.table["scenario"]} == expected
    assert found.monitorability.score > 0.5
    accuracy = next(gate for gate in found.gates if gate.name == "accuracy")
    assert accuracy.measured == 1


def test_tokens_in_a_dict_are_checked_too():
    rows, labels = rows_of_letters(90)
    inputs = {"input_ids": rows, "attention_mask": (rows > 0).long()}
    network = assay.Network(Letters(90))
    novelty = {"mixed": {name: values[:50].flip(1) for name, values in inputs.items()}}
    found = assay.check_network(network, (inputs, labels), severities=(5,), novelty=novelty)
    assert "mixed" in set(found.benchmark.table["scenario"])
    assert found.guard(inputs).alarm.shape == (400,)


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
        *(
            "check.safetensors",
            "guard.safetensors",
            "watch.safetensors",
            "report.html",
            "estimator.safetensors",
        )
    }
    live = ["accuracy", "digits", "--network", "guessing:network", "--json"]
    asked = CliRunner().invoke(app, [*live, "--estimator", "assay-check/estimator.safetensors"])
    assert json.loads(asked.output)["rows"] == len(assay.data.digits()[1].labels)
    page = CliRunner().invoke(
        app, ["report", "assay-check/check.safetensors", "--network", "guessing:network"]
    )
    assert page.exit_code == 0, page.output
    assert "Is this network fit to ship?" in (tmp_path / "report.html").read_text()
