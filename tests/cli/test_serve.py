"""`assay serve` watches the layers that the guard needs, whatever these are."""

import pytest
import torch
from typer.testing import CliRunner

import assay
from assay import Guard, Network
from assay.cli import app
from assay.cli.saved_guard import guard_at
from assay.cli.serve import _build_watch, _webhooks
from assay.errors import AssayError
from assay.monitors import ActivationBox

MODULE = """
import torch
from torch import nn


def factory():
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 3, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers)
"""


def watch_of(guard, reference=None, layer="penultimate"):
    return _build_watch(guard, reference, None, layer, 0.1, 20, 0.01, 1)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A guard on the first layer of a network without any Linear, which so has no penultimate layer."""
    (tmp_path / "linearless.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    import linearless

    network = Network(linearless.factory(), layers="0")
    images = torch.rand(60, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    trace = network.observe((images, network.observe(images).predictions))
    assay.save(Guard(network, ActivationBox(layer="0").fit(trace)).calibrate(trace, 0.2), tmp_path / "guard")
    assay.save(trace, tmp_path / "clean")
    return tmp_path


def test_the_guard_brings_its_own_layers(folder):
    guard = guard_at(folder / "guard", "linearless:factory")
    assert guard.network.layers == ("0",)
    images = torch.rand(5, 1, 8, 8)
    assert len(watch_of(guard)(images)) == 5
    watched = watch_of(guard, folder / "clean")  # which says nothing of a penultimate layer
    assert len(watched(images)) == 5
    assert watched.bins is None


def test_the_histogram_may_be_of_another_layer(folder):
    network = guard_at(folder / "guard", "linearless:factory").network
    images = torch.rand(60, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    assay.save(network.watching(["2"]).observe(images), folder / "both")
    watched = watch_of(guard_at(folder / "guard", "linearless:factory"), folder / "both", "2")
    watched(images[:7])
    assert watched.histogram.total == 7
    with pytest.raises(AssayError, match="'2'"):
        watch_of(guard_at(folder / "guard", "linearless:factory"), folder / "clean", "2")


def test_a_taught_estimator_brings_the_layer_that_it_reads(folder):
    guard = guard_at(folder / "guard", "linearless:factory")
    images = torch.rand(120, 1, 8, 8, generator=torch.Generator().manual_seed(2))
    labels = guard.network.observe(images).predictions
    labels[::9] = (labels[::9] + 1) % 3
    network = guard.network.watching(["2"])
    taught = assay.AccuracyEstimator(window=60).fit((images, labels), network=network)
    assay.save(taught, folder / "estimator")
    watched = _build_watch(guard, None, None, "penultimate", 0.1, 60, 0.01, 1, folder / "estimator")
    watched(images[:60])
    assert watched.state_now().history.windows == 1
    assert set(taught.layers) <= set(watched.guard.layers)
    both = _build_watch(guard, folder / "clean", None, "penultimate", 0.1, 20, 0.01, 1, folder / "estimator")
    assert both.estimator.fingerprint == taught.fingerprint
    with pytest.raises(AssayError, match="AccuracyEstimator"):
        _build_watch(guard, None, None, "penultimate", 0.1, 60, 0.01, 1, folder / "clean")


def test_the_address_of_a_webhook_is_checked_first_and_never_shown():
    given = ["serve", "nowhere.safetensors", "--alert-slack", "hooks.slack.com/secret"]
    error = CliRunner().invoke(app, given).exception
    assert "begins with http" in str(error)
    assert "secret" not in str(error).replace("a secret", "")
    hooks = _webhooks(["https://a/1", "https://b/2"], ["http://c:9093/api/v2/alerts"])
    assert [(hook.host, type(hook.form).__name__) for hook in hooks] == [
        ("a", "SlackForm"),
        ("b", "SlackForm"),
        ("c", "AlertmanagerForm"),
    ]
