"""Monitors with settings, as the command line names them."""

import pytest
import torch

import assay
from assay.cli.monitor_reference import monitor_at
from assay.errors import InputError


@pytest.fixture(scope="module")
def network():
    return assay.Network(torch.nn.Sequential(torch.nn.Linear(4, 3)), layers=())


def test_settings_reach_the_monitor(network):
    found = monitor_at("knn:k=10,limit=500,layer=layer4.1", network)
    assert isinstance(found, assay.monitors.KNN)
    assert (found.k, found.limit, found.layer) == (10, 500, "layer4.1")
    assert monitor_at("KNN", network).k == assay.monitors.KNN().k
    assert monitor_at("ODIN:temperature=10.5", network).temperature == 10.5
    assert monitor_at("AllowedClasses:allowed=[0, 2]", network) is not None


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("Nobody", "a monitor of assay.monitors, got 'Nobody'"),
        ("Monitor", "a monitor of assay.monitors, got 'Monitor'"),
        ("KNN:neighbours=3", r"settings of KNN \(layer, k, limit, seed\), got 'neighbours'"),
        ("KNN:k", "NAME:name=value"),
        ("KNN:", "NAME:name=value"),
        ("KNN:k=", "NAME:name=value"),
        ("KNN:k=1,k=2", "NAME:name=value"),
        ("KNN:**k", "NAME:name=value"),
        ("KNN:k=open('x')", "NAME:name=value"),
        ("KNN:k=-1", "KNN|at least|positive|expected"),
        ("KNN:k=many", "expected"),
        ("Rule", "with a setting for predicate"),
    ],
)
def test_what_is_no_monitor_is_one_sentence(network, reference, words):
    with pytest.raises(InputError, match=words):
        monitor_at(reference, network)
