"""A run measures what the guards do, resumes where it was, and draws honest conclusions."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from sklearn import metrics
from torch import nn

import assay
from assay.benchmark import Outcome
from assay.benchmark.ranking import ranking
from assay.benchmark.result import COLUMNS
from assay.errors import InputError, NotFittedError
from assay.faults import TABULAR, TEXT
from assay.guard import Guard

CONTRACT = [
    "guard", "scenario", "category", "severity",
    *(f"specific_{m}" for m in ("mcc", "fpr", "fnr", "precision", "recall", "f1", "auroc")),
    *(f"overall_{m}" for m in ("mcc", "fpr", "fnr", "precision", "recall", "f1", "auroc")),
    "model_mcc", "system_mcc", "model_seconds", "monitor_seconds", "monitor_bytes",
]  # fmt: skip

TIMES = ["model_seconds", "monitor_seconds"]


@pytest.fixture(scope="module")
def scenarios(network, data):
    novelty = {"flat": 0.3 + 0.05 * torch.rand(60, 1, 8, 8, generator=torch.Generator().manual_seed(0))}
    faults = ["gaussian", "dead_rows", "contrast", "fgsm"]
    return assay.build_scenarios(*data, network=network, faults=faults, novelty=novelty)


@pytest.fixture(scope="module")
def result(guards, scenarios):
    return assay.run_benchmark(guards, scenarios)


def test_the_frame_has_the_columns_of_the_contract_and_a_row_per_guard_and_scenario(
    result, guards, scenarios
):
    frame = result.to_frame()
    assert list(frame.columns) == CONTRACT == list(COLUMNS)
    assert len(frame) == len(guards) * len(scenarios)
    assert list(frame["guard"][:4]) == list(guards)
    assert (frame[TIMES] > 0).all(axis=None)


def test_recorded_shards_are_measured_like_their_inputs(guards, scenarios, network, tmp_path):
    """Judged shard by shard, without the network; only the seconds are others."""
    scenario = scenarios[0]
    guards = {name: guard for name, guard in guards.items() if name != "coin"}  # tossed for every batch
    whole = network.observe(scenario.inputs, keep_inputs=True)
    shards = (whole[start : start + 60] for start in range(0, len(whole), 60))
    sharded = assay.ShardedTrace.write(shards, tmp_path / "shards", network=network.fingerprint)
    part = (scenario.name, scenario.category, sharded, scenario.labels, scenario.is_fault)
    recorded = assay.Scenario.of(*part, severity=scenario.severity)
    folders = {"checkpoint": tmp_path / "cells", "readouts": tmp_path / "readouts"}
    found = assay.run_benchmark(guards, [recorded], **folders).table
    expected = assay.run_benchmark(guards, [dataclasses.replace(scenario, rows=None)]).table
    pd.testing.assert_frame_equal(found.drop(columns=TIMES), expected.drop(columns=TIMES))
    assert found["model_seconds"].isna().all()
    (again,) = assay.run_benchmark(guards, [recorded], **folders).table[TIMES[1]].unique()[:1]
    assert again == found[TIMES[1]][0]  # read from the cells
    with pytest.raises(InputError, match="expected no batch_size"):
        assay.run_benchmark(guards, [recorded], batch_size=1)
    with pytest.raises(InputError, match="one label per input"):
        assay.Scenario.of("short", "shift", sharded[:10], scenario.labels, scenario.is_fault)
    other = assay.Scenario.of(*part[:2], assay.ShardedTrace(sharded.shards, "another"), *part[3:])
    with pytest.raises(InputError, match="those of another; observe with the same network"):
        assay.run_benchmark(guards, [other])


@pytest.mark.filterwarnings("ignore:A single label was found")
def test_every_number_is_what_the_guard_itself_gives(result, guards, scenarios):
    frame = result.to_frame().set_index(["guard", "scenario"])
    for scenario in scenarios:
        for name, guard in guards.items():
            verdict = guard(scenario.inputs)
            row = frame.loc[(name, scenario.name)]
            alarm, labels = verdict.alarm.numpy(), scenario.labels.numpy()
            fault = scenario.is_fault.numpy()
            wrong = verdict.predictions.numpy() != labels
            for prefix, truth in (("specific", fault), ("overall", wrong)):
                assert row[f"{prefix}_mcc"] == pytest.approx(metrics.matthews_corrcoef(truth, alarm))
                assert row[f"{prefix}_recall"] == pytest.approx(
                    metrics.recall_score(truth, alarm, zero_division=0)
                )
                if 0 < truth.sum() < len(truth):
                    expected = metrics.roc_auc_score(truth, verdict.scores.numpy())
                    assert row[f"{prefix}_auroc"] == pytest.approx(expected)
            answers = verdict.accepted_predictions.numpy()
            assert row["model_mcc"] == pytest.approx(
                metrics.matthews_corrcoef(labels, verdict.predictions.numpy())
            )
            assert row["system_mcc"] == pytest.approx(metrics.matthews_corrcoef(labels, answers))
            assert row["monitor_bytes"] == guard.monitor.nbytes


def test_one_input_at_a_time_gives_what_batches_give(guards, data):
    inputs, labels = data
    scenarios = assay.build_scenarios(inputs[:40], labels[:40], faults=["speckle"])
    single, batched = (assay.run_benchmark(guards, scenarios, batch_size=size) for size in (1, None))
    same = [column for column in single.table.columns if column not in TIMES]
    pd.testing.assert_frame_equal(single.table[same], batched.table[same])


def test_guards_that_share_a_network_share_its_forward_pass(guards, data, monkeypatch):
    calls = []
    observe = Guard.observe
    monkeypatch.setattr(Guard, "observe", lambda self, batch: calls.append(1) or observe(self, batch))
    assay.run_benchmark(guards, assay.build_scenarios(*data, faults=["contrast"], severities=(2,)))
    # One batch; once for the guards that need no inputs, once for the one that does.
    assert len(calls) == 2


def test_a_killed_run_goes_on_where_it_was_and_gives_the_identical_result(
    guards, scenarios, result, tmp_path, monkeypatch
):
    judge, seen = Guard.judge, []

    def dying(self, trace):
        seen.append(1)
        if len(seen) > 10:
            raise KeyboardInterrupt
        return judge(self, trace)

    monkeypatch.setattr(Guard, "judge", dying)
    with pytest.raises(KeyboardInterrupt):
        assay.run_benchmark(guards, scenarios, checkpoint=tmp_path)
    finished = len(list(tmp_path.glob("*.json")))
    assert 0 < finished < len(guards) * len(scenarios)
    again = []
    monkeypatch.setattr(Guard, "judge", lambda self, trace: again.append(1) or judge(self, trace))
    resumed = assay.run_benchmark(guards, scenarios, checkpoint=tmp_path)
    assert len(again) == len(guards) * len(scenarios) - finished
    same = [column for column in result.table.columns if column not in TIMES]
    pd.testing.assert_frame_equal(resumed.table[same], result.table[same], check_exact=True)
    once_more = assay.run_benchmark(guards, scenarios, checkpoint=tmp_path)
    pd.testing.assert_frame_equal(once_more.table, resumed.table, check_exact=True)
    assert resumed.errors == pytest.approx(result.errors, rel=1e-12)
    assert once_more.errors == pytest.approx(result.errors, rel=1e-12)
    assert len(again) == len(guards) * len(scenarios) - finished


def test_cells_of_another_threshold_seed_or_data_are_not_taken_over(guards, scenarios, data, tmp_path):
    some = {"maha": guards["maha"]}
    assay.run_benchmark(some, scenarios[:1], checkpoint=tmp_path)
    stricter = {"maha": Guard(guards["maha"].network, guards["maha"].monitor, threshold=0.0)}
    changed = assay.run_benchmark(stricter, scenarios[:1], checkpoint=tmp_path)
    assert changed.table["specific_recall"][0] == 1.0
    assay.run_benchmark(some, scenarios[:1], checkpoint=tmp_path, seed=1)
    other = assay.build_scenarios(*data, faults=["gaussian"], severities=(1,), seed=9)
    assay.run_benchmark(some, other, checkpoint=tmp_path)
    assert len(list(tmp_path.glob("*.json"))) == 4


def test_cells_of_another_fit_are_not_taken_over(network, scenarios, data, tmp_path):
    """Two boxes with the same settings and the same threshold, fitted on other data."""
    monitor = assay.monitors.ActivationBox(layer="penultimate")
    guards = {"box": Guard(network, monitor, threshold=0.0)}
    narrow, wide = (network.observe(data[0] * scale) for scale in (0.5, 1.0))
    monitor.fit(narrow)
    first = assay.run_benchmark(guards, scenarios[:1], checkpoint=tmp_path)
    monitor.fit(wide)
    resumed = assay.run_benchmark(guards, scenarios[:1], checkpoint=tmp_path)
    alone = assay.run_benchmark(guards, scenarios[:1])
    assert resumed.table["specific_mcc"][0] == alone.table["specific_mcc"][0]
    assert resumed.table["clean_false_alarms"][0] < first.table["clean_false_alarms"][0]


def test_results_of_what_has_no_identity_are_not_kept(guards, network, scenarios, tmp_path):
    rule = assay.monitors.Rule(lambda trace: trace.logits[:, 0] > 0, needs_inputs=False)
    nameless = {"rule": Guard(network, rule.fit(network.observe(torch.zeros(9, 1, 8, 8))), threshold=0.5)}
    for options in ({"checkpoint": tmp_path}, {"readouts": tmp_path}):
        with pytest.raises(InputError, match="pass name="):
            assay.run_benchmark(nameless, scenarios[:1], **options)
    assert len(assay.run_benchmark(nameless, scenarios[:1]).table) == 1
    unknown = dataclasses.replace(scenarios[0], fingerprint="")
    with pytest.raises(InputError, match=r"Scenario\.of"):
        assay.run_benchmark({"msp": guards["msp"]}, [unknown], checkpoint=tmp_path)


def test_readouts_let_others_evaluate_their_own_way(guards, scenarios, result, tmp_path):
    assay.run_benchmark({"maha": guards["maha"]}, scenarios, readouts=tmp_path, checkpoint=tmp_path / "c")
    files = sorted(tmp_path.glob("*.parquet"))
    assert len(files) == len(scenarios)
    readouts = pd.concat([pd.read_parquet(file) for file in files])
    frame = result.to_frame().set_index(["guard", "scenario"])
    for name, part in readouts.groupby("scenario"):
        expected = metrics.matthews_corrcoef(part["is_fault"], part["alarm"])
        assert frame.loc[("maha", name), "specific_mcc"] == pytest.approx(expected)
        right = part["overall_outcome"].isin([Outcome.TRUE_POSITIVE, Outcome.TRUE_NEGATIVE])
        assert (right == part["overall_right"]).all()
    assert {"label", "prediction", "confidence", "score", "model_seconds"} <= set(readouts.columns)
    # A finished cell whose readouts are gone is run again.
    files[0].unlink()
    assay.run_benchmark({"maha": guards["maha"]}, scenarios, readouts=tmp_path, checkpoint=tmp_path / "c")
    assert sorted(tmp_path.glob("*.parquet")) == files


def test_readouts_have_what_the_watched_layers_put_out(guards, scenarios, tmp_path):
    assay.run_benchmark({"maha": guards["maha"]}, scenarios[:1], readouts=tmp_path, keep_features=True)
    readout = pd.read_parquet(next(tmp_path.glob("*.parquet")))
    trace = guards["maha"].network.observe(scenarios[0].inputs)
    kept = np.stack(readout["features penultimate"])
    np.testing.assert_allclose(kept, trace.features["penultimate"].numpy(), rtol=1e-5, atol=1e-6)


def test_results_are_saved_and_speak_plainly(result, tmp_path):
    assay.save(result, tmp_path / "result")
    loaded = assay.load(tmp_path / "result")
    pd.testing.assert_frame_equal(loaded.to_frame(), result.to_frame(), check_exact=True)
    assert loaded.summary() == result.summary()
    assert result.best in result.summary()
    assert len(result.figures()) == 4
    assert set(result.by_category().columns) >= {"guard", "noise", "novelty", "all"}
    facts = result.by_guard().set_index("guard")
    # Calibrated on clean data to 5 %: within the noise of 40 clean rows per scenario.
    assert (facts["false_alarms"] < 0.15).all()
    change = facts["clean_system_mcc"] / facts["clean_model_mcc"] - 1
    assert facts["clean_system_change"].to_numpy() == pytest.approx(change.to_numpy())


def test_the_conclusion_says_when_no_monitor_beats_chance(guards, scenarios):
    only_coins = {"coin": guards["coin"], "other coin": guards["coin"]}
    result = assay.run_benchmark(only_coins, [s for s in scenarios if s.name != "flat"])
    table = result.table.assign(specific_mcc=np.resize([0.02, -0.03, 0.01, -0.01, 0.02], len(result.table)))
    errors = dict.fromkeys(only_coins, 0.02)
    chance = type(result)(table, errors=errors)
    assert "No monitor did better than chance" in chance.summary()
    barely = type(result)(table.assign(specific_mcc=0.05), errors=errors)  # surely above 0, and of no use
    assert "2 did better than chance, but hardly (a mean MCC below 0.1)" in barely.summary()
    good = type(result)(
        table.assign(specific_mcc=np.where(table["guard"] == "coin", 0.5, 0.02)), errors=errors
    )
    assert "Of the 2 monitors 1 did no better than chance" in good.summary()


def table_of(values):
    return pd.DataFrame(
        [
            {"guard": guard, "scenario": str(row), "specific_mcc": value}
            for row, line in enumerate(values)
            for guard, value in zip("abcd", line, strict=False)
        ]
    )


def test_ranks_agree_with_the_textbook_and_scipy(tmp_path):
    generator = np.random.default_rng(0)
    values = generator.normal(size=(30, 4)) + np.array([1.5, 0.5, 0.5, 0])
    found = ranking(table_of(values), "specific_mcc", 0.95)
    ranks = stats.rankdata(-values, axis=1).mean(axis=0)
    assert list(found.ranks.values()) == pytest.approx(ranks)
    assert found.p_value == pytest.approx(stats.friedmanchisquare(*values.T).pvalue)
    # Demsar 2006, Table 5: q of 0.05 for four classifiers is 2.569.
    assert found.critical_difference == pytest.approx(2.569 * np.sqrt(4 * 5 / (6 * 30)), abs=1e-3)
    assert found.best == "a"
    far = np.abs(ranks[0] - ranks) > found.critical_difference
    assert found.rivals == [name for name, out in zip("abcd", far, strict=True) if not out and name != "a"]
    # What scikit-posthocs 0.17.1 gave for these values (posthoc_nemenyi_friedman).
    assert found.pairs[list("abcd")].to_numpy() == pytest.approx(
        np.array(
            [
                [1.0, 0.05989401, 0.03497675, 0.02628299],
                [0.05989401, 1.0, 0.99716932, 0.99062298],
                [0.03497675, 0.99716932, 1.0, 0.99964217],
                [0.02628299, 0.99062298, 0.99964217, 1.0],
            ]
        ),
        abs=1e-8,
    )
    assay.save(found, tmp_path / "ranking")
    assert assay.load(tmp_path / "ranking").rivals == found.rivals


def test_the_diagram_names_every_guard_and_joins_those_that_cannot_be_told_apart():
    generator = np.random.default_rng(0)
    found = ranking(
        table_of(generator.normal(size=(30, 4)) + np.array([1.5, 0.5, 0.5, 0])), "specific_mcc", 0.95
    )
    assert found.alike == [["a", "b"], ["b", "c", "d"]]  # a differs from c and d: see the p-values above
    (axes,) = found.plot().axes
    assert axes.get_title().startswith("Who wins most often? Average place by specific mcc over 30 scenarios")
    assert sorted(text.get_text().strip() for text in axes.texts) == sorted(
        [f"{name} ({found.ranks[name]:.2f})" for name in "ab"]
        + [f"({found.ranks[name]:.2f}) {name}" for name in "cd"]
    )
    bars = [line.get_xdata().tolist() for line in axes.lines if line.get_linewidth() == 2]
    assert bars == [[found.ranks["a"], found.ranks["b"]], [found.ranks["b"], found.ranks["d"]]]
    # Where the guards as a whole do not differ, no pair does, whatever its own test says.
    assert dataclasses.replace(found, p_value=0.2).alike == [["a", "b", "c", "d"]]


def test_ties_share_ranks_and_equal_guards_do_not_differ():
    found = ranking(table_of([[1.0, 1.0, 1.0]] * 5), "specific_mcc", 0.95)
    assert list(found.ranks.values()) == [2.0, 2.0, 2.0]
    assert found.p_value == 1.0
    assert len(found.rivals) == 2
    # Some ties; what scikit-posthocs 0.17.1 gave for these values.
    tied = ranking(
        table_of([[1, 1, 2, 0], [0.5] * 4, [3, 2, 2, 1], [0.1, 0.4, 0.4, 0.2], [2, 1, 0, 0]]),
        "specific_mcc",
        0.95,
    )
    assert tied.pairs["d"].to_numpy() == pytest.approx([0.45593277] * 3 + [1], abs=1e-8)
    assert tied.pairs["a"].to_numpy() == pytest.approx([1, 1, 1, 0.45593277], abs=1e-8)
    two = ranking(table_of([[0.1 * row + 0.5, 0.1 * row] for row in range(10)]), "specific_mcc", 0.95)
    assert two.p_value < 0.05
    assert two.rivals == two.alike == []
    with pytest.raises(InputError, match="at least two guards and two scenarios"):
        ranking(table_of([[1.0]]), "specific_mcc", 0.95)


def test_bad_input_gets_one_clear_sentence_before_any_work(guards, scenarios, network):
    bare = Guard(network, guards["maha"].monitor)
    with pytest.raises(NotFittedError, match="got 'bare' without threshold"):
        assay.run_benchmark({"maha": guards["maha"], "bare": bare}, scenarios)
    with pytest.raises(InputError, match="at least one guard"):
        assay.run_benchmark({}, scenarios)
    with pytest.raises(InputError, match="as 'maha', got Mahalanobis"):
        assay.run_benchmark({"maha": guards["maha"].monitor}, scenarios)
    with pytest.raises(InputError, match="at least one scenario"):
        assay.run_benchmark(guards, [])
    with pytest.raises(InputError, match="each name once"):
        assay.run_benchmark(guards, [scenarios[0], scenarios[0]])
    inputs = torch.rand(3, 1, 8, 8)
    beyond = assay.Scenario.of("beyond", "shift", inputs, [0, 1, 4], [True, True, False])
    with pytest.raises(InputError, match="expected labels from 0 to 3 in scenario 'beyond'"):
        assay.run_benchmark(guards, [beyond])
    with pytest.raises(InputError, match="level between 0 and 1"):
        assay.run_benchmark(guards, scenarios, level=1)


class Letters(assay.Network):
    """Texts in: counts of letters, which a text of one kind has more of."""

    def encode(self, data):
        if isinstance(data, list):
            return torch.tensor([[float(text.count(letter)) for letter in "abcde"] for text in data])
        return super().encode(data)


def test_tables_and_texts_are_judged_like_images():
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(300, 5, generator=generator)
    labels = table.argmax(dim=1)
    texts = [
        "".join(letter * int(3 + 3 * x) for letter, x in zip("abcde", row, strict=True)) for row in table
    ]
    for inputs, kind in ((table, assay.Network), (texts, Letters)):
        network = kind(nn.Sequential(nn.Linear(5, 5, bias=False), nn.ReLU(), nn.Linear(5, 5, bias=False)))
        with torch.no_grad():
            for layer in (network.module[0], network.module[2]):
                layer.weight.copy_(torch.eye(5))
        trace = network.observe(inputs[:100])
        guard = assay.Guard(network, assay.monitors.MaxSoftmax().fit(trace)).calibrate(trace)
        scenarios = assay.build_scenarios(inputs[100:], labels[100:], network=network)
        found = assay.run_benchmark({"msp": guard}, scenarios).to_frame()
        # Two severities each, and FGSM for the table.
        assert len(found) == 2 * (len(TABULAR) + 1 if kind is assay.Network else len(TEXT))
        harmless, harmful = (found[found["severity"] == level]["model_mcc"].mean() for level in (1, 5))
        assert harmless > harmful


def test_checkpoints_are_plain_json(guards, scenarios, tmp_path):
    assay.run_benchmark({"msp": guards["msp"]}, scenarios[:1], checkpoint=tmp_path)
    (file,) = tmp_path.glob("*.json")
    assert json.loads(file.read_text())["row"]["guard"] == "msp"
