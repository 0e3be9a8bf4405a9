"""Networks and layers are ranked, from shared passes, with how sure the order is."""

import inspect
import re
from pathlib import Path

import pytest
import torch
from torch import nn

import assay
from assay.cli.mira import mira
from assay.errors import InputError
from assay.mira import MiraSettings


def blobs(count, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 3
    centres = torch.tensor([[4.0, 0.0, 0.0, 0.0], [0.0, 4.0, 0.0, 0.0], [0.0, 0.0, 4.0, 0.0]])
    return centres[labels] + torch.randn(count, 4, generator=generator), labels


TRAIN, TEST = blobs(600, 0), blobs(300, 1)


def trained(width, seed):
    torch.manual_seed(seed)
    module = nn.Sequential(
        nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 3)
    )
    optimiser = torch.optim.Adam(module.parameters(), lr=0.02)
    for _ in range(60):
        optimiser.zero_grad()
        torch.autograd.backward(nn.functional.cross_entropy(module(TRAIN[0]), TRAIN[1]))
        optimiser.step()
    return assay.Network(module.eval())


@pytest.fixture(scope="module")
def networks():
    return {"narrow": trained(3, 0), "wide": trained(24, 1)}


OPTIONS = {"steps": 5, "resamples": 200}


def test_networks_are_ranked_by_the_scores_they_have_alone(networks):
    compared = assay.compare_monitorability(networks, TRAIN, TEST, **OPTIONS)
    alone = {
        name: assay.mira_score(network, TRAIN, TEST, **OPTIONS).score for name, network in networks.items()
    }
    frame = compared.to_frame()
    assert frame["network"].tolist() == sorted(alone, key=alone.get, reverse=True)
    assert frame["score"].tolist() == pytest.approx(sorted(alone.values(), reverse=True), rel=1e-9)
    assert frame["rank"].tolist() == [1, 2]
    assert frame["network"][0] in compared.summary()


def test_layers_and_joined_layers_of_one_network_share_their_passes(networks, monkeypatch):
    network = networks["wide"]
    counts = []
    original = assay.Network._forward

    def counted(self, inputs, layers):
        counts.append(len(inputs))
        return original(self, inputs, layers)

    monkeypatch.setattr(assay.Network, "_forward", counted)
    assay.compare_monitorability(network, TRAIN, TEST, layers=["1"], epsilon_range=(0.1, 0.2), **OPTIONS)
    single = sum(counts)
    counts.clear()
    compared = assay.compare_monitorability(
        network, TRAIN, TEST, layers=["1", "3", ("1", "3")], epsilon_range=(0.1, 0.2), **OPTIONS
    )
    # Beside the shared passes each layer looks at a few inputs again for its picture.
    assert sum(counts) <= single + 2 * 2 * 150
    assert set(compared.to_frame()["layer"]) == {"1", "3", "1 + 3"}
    assert "is the layer" in compared.summary()
    apart = assay.mira_score(network, TRAIN, TEST, layer="3", epsilon_range=(0.1, 0.2), **OPTIONS)
    joint = next(result for result in compared.results if result.layer == "3")
    assert joint.score == pytest.approx(apart.score, rel=1e-6)
    assert network.layers == ("penultimate",)


def test_a_network_compared_with_itself_is_not_told_apart(networks):
    twins = {"one": networks["wide"], "other": networks["wide"]}
    compared = assay.compare_monitorability(twins, TRAIN, TEST, **OPTIONS)
    assert compared.to_frame()["beats_next"][0] == 0
    assert "one and other cannot be told apart with these inputs" in compared.summary()


def test_a_comparison_is_saved_and_drawn(networks, tmp_path):
    compared = assay.compare_monitorability(networks, TRAIN, TEST, **OPTIONS)
    assay.save(compared, tmp_path / "c")
    assert assay.load(tmp_path / "c").to_frame().equals(compared.to_frame())
    assert compared.plot().axes[0].get_xlabel().startswith("MIRA score")


def test_errors_name_the_network(networks):
    wrong = TEST[0], (TEST[1] + 1) % 3
    with pytest.raises(InputError, match="narrow: expected accuracy on clean inputs above"):
        assay.compare_monitorability(networks, TRAIN, wrong)
    with pytest.raises(InputError, match="at least one network"):
        assay.compare_monitorability({}, TRAIN, TEST)
    with pytest.raises(InputError, match="at least one layer"):
        assay.compare_monitorability(networks, TRAIN, TEST, layers=[])


@pytest.mark.parametrize(
    "function", [assay.mira_score, assay.compare_monitorability, assay.validate_monitorability]
)
def test_every_option_stands_in_the_signature_as_it_is_stated(function):
    shown = inspect.signature(function).parameters
    stated = inspect.signature(MiraSettings).parameters
    assert {name: shown[name] for name in stated} == dict(stated)
    assert not [name for name, parameter in shown.items() if parameter.kind is parameter.VAR_KEYWORD]


def test_the_docs_and_the_command_state_the_same_options():
    defaults = {name: option.default for name, option in inspect.signature(MiraSettings).parameters.items()}
    page = Path(__file__).parents[2] / "docs" / "monitorability.md"
    rows = re.findall(
        r"^\| (`[^|]*`) \|.*\| ([^|]*) \|$", page.read_text().split("## Options")[1], re.MULTILINE
    )
    listed = {}
    for names, values in rows:
        names, values = re.findall(r"`(\w+)`", names), values.split(", ")
        listed |= dict(zip(names, values * len(names) if len(values) == 1 else values, strict=True))
    assert set(listed) == {"layer", *defaults}
    for name, default in defaults.items():
        if default is not None:  # the page says in words what None means
            assert listed[name].strip('`"') == str(default), name
    command = inspect.signature(mira).parameters
    for name in ("accuracy_threshold", "steps", "low", "high", "estimator", "seed"):
        assert command[name].default == defaults[name], name
