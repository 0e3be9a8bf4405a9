"""The paper's Fig. 1: equal accuracy, different monitorability."""

import importlib.util
from pathlib import Path

import pytest

import assay

TOY = Path(__file__).parents[2] / "benchmarks" / "papers" / "mira_toy.py"


@pytest.fixture(scope="module")
def toy():
    specification = importlib.util.spec_from_file_location("mira_toy", TOY)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_two_networks_without_an_error_differ_in_what_they_let_a_monitor_see(toy):
    networks = toy.two_networks()
    train, test = toy.known_points(seed=0), toy.known_points(seed=1)
    assert all(network.observe(test).correct.all() for network in networks.values())
    compared = assay.compare_monitorability(networks, train, test)
    assert compared.networks == ("Net2", "Net1")
    frame = compared.to_frame()
    assert frame["beats_next"][0] == 1
    assert frame["lower"][0] > 0 > frame["upper"][1]
    # What the score says before any unknown point was seen, a monitor confirms on the unknown points.
    assert toy.detection(networks["Net1"]) < 0.6
    assert toy.detection(networks["Net2"]) > 0.95


def test_the_figure_shows_the_data_and_both_networks(toy):
    figure = toy.toy_figure(toy.two_networks())
    assert [axes.get_title()[:4] for axes in figure.axes] == ["the ", "Net1", "Net2"]
