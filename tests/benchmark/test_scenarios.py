"""Scenarios mix what they say, lazily, the same for one seed, and refuse bad data before any work."""

import weakref

import numpy as np
import pytest
import torch

import assay
from assay.errors import InputError
from assay.faults import NOISE, TABULAR, TEXT


def test_the_paper_s_set_is_made_without_being_asked(network, data):
    others = torch.rand(50, 1, 8, 8)
    scenarios = assay.build_scenarios(*data, network=network, severities=(1, 5), novelty={"other": others})
    # 19 transformations and FGSM at two severities, and the novelty.
    assert len(scenarios) == 41
    assert {scenario.category for scenario in scenarios} == {
        "novelty", "noise", "anomaly", "shift", "adversarial"
    }  # fmt: skip
    assert [s.severity for s in scenarios if s.category == "novelty"] == [0]
    assert len({scenario.name for scenario in scenarios}) == 41


@pytest.mark.parametrize("name", ["gaussian", "fgsm", "stuck_frame"])
def test_a_fifth_is_untouched_and_the_rest_is_the_fault_of_the_right_rows(network, data, name):
    inputs, labels = data
    (scenario,) = assay.build_scenarios(inputs, labels, network=network, severities=(3,), faults=[name])
    assert len(scenario) == 200
    assert int(scenario.is_fault.sum()) == 160
    stream = scenario.inputs
    clean = stream[~scenario.is_fault]
    rows = torch.cdist(clean.flatten(1), inputs.flatten(1)).argmin(dim=1)
    assert torch.equal(inputs[rows], clean)
    assert torch.equal(labels[rows], scenario.labels[~scenario.is_fault])
    assert len(set(rows.tolist())) == 40
    changed = (stream[scenario.is_fault, None] != inputs).flatten(2).any(dim=2).all(dim=1)
    assert changed.double().mean() > 0.95 or name == "stuck_frame"
    # Random order: neither the labels nor the faults come sorted.
    assert not torch.equal(scenario.labels, scenario.labels.sort().values)
    assert 0.1 < scenario.is_fault[:100].logical_not().double().mean() < 0.3


def test_novelty_has_no_label_and_is_joined_by_a_fifth_of_known_rows(data):
    others = torch.rand(80, 1, 8, 8)
    (scenario,) = assay.build_scenarios(*data, faults=[], novelty={"other": others})
    assert len(scenario) == 100
    assert (scenario.labels[scenario.is_fault] == -1).all()
    assert (scenario.labels[~scenario.is_fault] >= 0).all()
    found = scenario.inputs[scenario.is_fault].flatten(1)
    assert {tuple(row) for row in found.tolist()} == {tuple(row) for row in others.flatten(1).tolist()}
    assert scenario.is_novelty


def test_one_seed_repeats_itself_and_fewer_faults_change_no_other(data):
    first = {s.name: s for s in assay.build_scenarios(*data, faults=["gaussian", "snow"], seed=4)}
    again = {s.name: s for s in assay.build_scenarios(*data, faults=["snow"], seed=4)}
    other = {s.name: s for s in assay.build_scenarios(*data, faults=["snow"], seed=5)}
    assert set(first) == {"gaussian (1)", "gaussian (5)", "snow (1)", "snow (5)"}
    for name, scenario in again.items():
        assert torch.equal(scenario.inputs, first[name].inputs)
        assert torch.equal(scenario.is_fault, first[name].is_fault)
        assert scenario.fingerprint == first[name].fingerprint
        assert scenario.fingerprint != other[name].fingerprint
        assert not torch.equal(scenario.inputs, other[name].inputs)


def test_nothing_is_made_before_it_is_read_and_only_the_last_is_kept(data):
    made = []

    class Counting:
        name, category, kind = "counting", "noise", "image"

        def __call__(self, inputs, severity, seed=0):
            made.append(severity)
            return NOISE["gaussian"](inputs, severity, seed)

    one, five = assay.build_scenarios(*data, faults=[Counting()])
    assert made == []
    kept = weakref.ref(one.inputs)
    assert one.inputs is kept()
    assert made == [1]
    assert five.inputs is not None
    assert kept() is None
    assert made == [1, 5]


def test_the_data_given_is_left_alone(network, data):
    inputs, labels = data[0].clone(), data[1].clone()
    for scenario in assay.build_scenarios(inputs, labels, network=network):
        assert scenario.inputs.shape == inputs.shape
    assert torch.equal(inputs, data[0])
    assert torch.equal(labels, data[1])


def test_tables_and_texts_get_their_own_faults():
    table = np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32)
    labels = np.arange(50) % 3
    names = {s.name.split(" ")[0] for s in assay.build_scenarios(table, labels)}
    assert names == set(TABULAR)
    texts = [f"sentence number {row} of many words" for row in range(50)]
    scenarios = assay.build_scenarios(texts, labels, novelty={"numbers": ["1 2 3", "4 5 6", "7 8 9", "10"]})
    assert {s.name.split(" ")[0] for s in scenarios} == {*TEXT, "numbers"}
    for scenario in scenarios:
        assert len(scenario.inputs) == len(scenario)
        known = [text in texts for text in scenario.inputs]
        # A word exchanged may be one of the same place in another text, which is then known too.
        assert sum(known) == int((~scenario.is_fault).sum()) or scenario.name.startswith("word_noise")


def test_recorded_faults_are_a_scenario_too(data):
    inputs, labels = data
    scenario = assay.Scenario.of("rain", "shift", inputs, labels, torch.arange(200) > 50, severity=2)
    assert torch.equal(scenario.inputs, inputs)
    assert scenario.fingerprint
    array = assay.Scenario.of("rain", "shift", inputs.numpy(), labels, torch.arange(200) > 50, severity=2)
    assert torch.equal(array.inputs, inputs)
    assert array.fingerprint == scenario.fingerprint
    assert assay.Scenario.of("typos", "noise", ("good", "gud"), [1, 1], [False, True]).inputs == [
        "good",
        "gud",
    ]
    with pytest.raises(InputError, match="one label per input"):
        assay.Scenario.of("rain", "shift", inputs, labels[:3], labels[:3] > 0)
    with pytest.raises(InputError, match="at least one row"):
        assay.Scenario.of("rain", "shift", inputs[:0], labels[:0], labels[:0] > 0)
    with pytest.raises(InputError, match="expected a category of"):
        assay.Scenario.of("rain", "weather", inputs, labels, labels > 0)


def test_bad_input_gets_one_clear_sentence_before_any_work(network, data):
    inputs, labels = data
    build = assay.build_scenarios
    with pytest.raises(InputError, match=r"values in \[0, 1\]"):
        build(inputs * 255, labels)
    for severity in (0, 6):
        with pytest.raises(InputError, match="severity from 1 to 5"):
            build(inputs, labels, severities=(severity,))
    with pytest.raises(InputError, match="expected labels from 0 to 4 - 1, got 2 to 5"):
        build(inputs, labels + 2, network=network)
    with pytest.raises(InputError, match="expected labels from 0"):
        build(inputs, labels - 1)
    with pytest.raises(InputError, match="one label per input"):
        build(inputs, labels[:10])
    with pytest.raises(InputError, match="at least one image"):
        build(inputs[:0], labels[:0])
    with pytest.raises(InputError, match="at least one input of the novelty"):
        build(inputs, labels, novelty={"none": inputs[:0]})
    with pytest.raises(InputError, match=r"assay\.faults\.matched"):
        build(inputs, labels, novelty={"other": torch.rand(5, 3, 8, 8)})
    with pytest.raises(InputError, match="expected network= for the attack"):
        build(inputs, labels, faults=["pgd"])
    with pytest.raises(InputError, match="expected a fault of image data, got 'rain'"):
        build(inputs, labels, faults=["rain"])
    with pytest.raises(InputError, match="name at least one"):
        build(inputs, labels, faults=[])
    with pytest.raises(InputError, match="clean_share between 0 and 1"):
        build(inputs, labels, clean_share=1)


def test_labels_that_are_all_ignored_are_refused(data):
    with pytest.raises(InputError, match="expected labels that count, got only -100"):
        assay.build_scenarios(data[0], torch.full_like(data[1], -100))
