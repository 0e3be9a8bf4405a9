"""What every monitor owes, checked for every public monitor class of `assay.monitors`.

A monitor that is built without arguments is found and tested by itself. One that needs arguments, or is slow
with its own, has a line in ARGUMENTS; further ways to build a monitor worth testing have one in VARIANTS.
"""

import inspect

import pytest
import torch
from torch import nn

import assay
from assay import Network, Trace, monitors
from assay.errors import InputError, NotFittedError
from assay.monitors import Energy, MaxSoftmax, Monitor

CLASSES = 3


def images(count, seed):
    return torch.rand(count, 1, 6, 6, generator=torch.Generator().manual_seed(seed))


def module(seed):
    """Small, with dropout, ending in a Linear; every class is predicted for a good share of images."""
    layers = nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(64, 12),
        nn.Tanh(),
        nn.Linear(12, CLASSES),
    ).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in layers.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / parameter[0].numel() ** 0.5)
        layers[-1].bias -= layers(images(100, seed=3)).mean(dim=0)
    return layers


NETWORK = Network(module(0))
SECOND = Network(module(1))

ARGUMENTS = {
    "AllOf": lambda: monitors.AllOf([Energy(), monitors.GaussianInterval()]),
    "AllowedClasses": lambda: monitors.AllowedClasses([0, 1]),
    "AnyOf": lambda: monitors.AnyOf([Energy(), monitors.Mahalanobis()]),
    "EnsembleDisagreement": lambda: monitors.EnsembleDisagreement([NETWORK, SECOND]),
    "InputRange": lambda: monitors.InputRange(low=0.0, high=0.9),
    "MonteCarloDropout": lambda: monitors.MonteCarloDropout(NETWORK),
    "ODIN": lambda: monitors.ODIN(NETWORK),
    "Reconstruction": lambda: monitors.Reconstruction(epochs=2),
    "Rule": lambda: monitors.Rule(lambda trace: trace.logits.amax(dim=1) > 0.5),
    "Standardised": lambda: monitors.Standardised([Energy(), monitors.Mahalanobis()]),
    "TemperatureScaled": lambda: monitors.TemperatureScaled(MaxSoftmax()),
}

VARIANTS = {
    "Mahalanobis-per-class": lambda: monitors.Mahalanobis(covariance="per_class"),
    "Mahalanobis-ledoit-wolf": lambda: monitors.Mahalanobis(estimator="ledoit_wolf"),
    "Mahalanobis-perturbed": lambda: monitors.Mahalanobis(network=NETWORK, magnitude=0.01),
    "RelativeMahalanobis-oas": lambda: monitors.RelativeMahalanobis(estimator="oas"),
    "KNN-sampled": lambda: monitors.KNN(k=3, limit=20),
    "ReAct-KLMatching": lambda: monitors.ReAct(monitors.KLMatching(), limit=40),
}

CANNOT_BE_SAVED = {"Rule"}
"""Holds a function of the user; saving it is an error that says so."""


def public_monitors():
    classes = [getattr(monitors, name) for name in monitors.__all__]
    return [
        cls for cls in classes if inspect.isclass(cls) and issubclass(cls, Monitor) and cls is not Monitor
    ]


def builders():
    built = {cls.__name__: ARGUMENTS.get(cls.__name__, cls) for cls in public_monitors()}
    return [pytest.param(build, id=name) for name, build in (built | VARIANTS).items()]


@pytest.fixture(scope="module")
def training():
    inputs = images(160, seed=1)
    labels = NETWORK.observe(inputs).predictions
    labels[::10] = (labels[::10] + 1) % CLASSES  # some are wrong
    return NETWORK.observe((inputs, labels), keep_inputs=True)


@pytest.fixture(scope="module")
def unseen():
    return NETWORK.observe(images(40, seed=2) * 1.1, keep_inputs=True)


@pytest.fixture(scope="module")
def fitted(training):
    """Each monitor fitted once for all tests that do not change it."""
    kept = {}

    def fit(build):
        if build not in kept:
            kept[build] = build().fit(training)
        return kept[build]

    return fit


def same(left, right):
    """Equal to rounding: features are in single precision, and a product of one row may round unlike that of
    many. The scores here are of order 1 to 100 and amplify rounding by at most 16 (see covariance.py)."""
    return torch.allclose(left, right, rtol=2e-5, atol=2e-5)


def test_every_public_monitor_is_built_without_arguments_or_has_a_line():
    for cls in public_monitors():
        needed = [
            name
            for name, parameter in inspect.signature(cls).parameters.items()
            if parameter.default is inspect.Parameter.empty
        ]
        assert not needed or cls.__name__ in ARGUMENTS, f"{cls.__name__} needs {needed}: add a line above"


@pytest.mark.parametrize("build", builders())
def test_one_finite_score_per_input(build, fitted, unseen):
    scores = fitted(build).score(unseen)
    assert scores.shape == (len(unseen),)
    assert scores.dtype == torch.float64
    assert torch.isfinite(scores).all()


@pytest.mark.parametrize("build", builders())
def test_fit_returns_the_monitor_itself(build, training):
    monitor = build()
    assert monitor.fit(training) is monitor


@pytest.mark.parametrize("build", builders())
def test_fitting_and_scoring_leave_the_trace_as_it_was(build, training, unseen):
    traces = [training, unseen]
    before = [
        [part.clone() for part in (trace.logits, trace.layer("penultimate"), trace.inputs)]
        for trace in traces
    ]
    build().fit(training).score(unseen)
    for trace, parts in zip(traces, before, strict=True):
        after = (trace.logits, trace.layer("penultimate"), trace.inputs)
        assert all(torch.equal(old, new) for old, new in zip(parts, after, strict=True))
    assert not unseen.inputs.requires_grad


@pytest.mark.parametrize("build", builders())
def test_a_batch_of_one_scores_as_in_a_batch_of_many(build, fitted, unseen):
    monitor = fitted(build)
    alone = torch.cat([monitor.score(unseen[row]) for row in range(12)])
    assert same(alone, monitor.score(unseen)[:12])


@pytest.mark.parametrize("build", builders())
def test_a_stream_gives_the_same_scores_as_one_trace(build, fitted, training, unseen):
    parts = (training[start:end] for start, end in [(0, 1), (1, 70), (70, 70), (70, 160)])
    assert torch.equal(build().fit(parts).score(unseen), fitted(build).score(unseen))


@pytest.mark.parametrize("build", builders())
def test_the_same_seed_gives_the_same_scores_and_global_random_state_is_untouched(
    build, fitted, training, unseen
):
    first = fitted(build).score(unseen)
    torch.manual_seed(99)
    state = torch.random.get_rng_state()
    assert torch.equal(build().fit(training).score(unseen), first)
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("build", builders())
def test_saving_and_loading_give_the_same_scores(build, fitted, unseen, tmp_path):
    monitor = fitted(build)
    path = tmp_path / "monitor.safetensors"
    if type(monitor).__name__ in CANNOT_BE_SAVED:
        with pytest.raises(assay.AssayError, match="file can hold"):
            assay.save(monitor, path)
        return
    assay.save(monitor, path)
    back = assay.load(path, network=[NETWORK, SECOND])
    assert type(back) is type(monitor)
    assert torch.equal(back.score(unseen), monitor.score(unseen))
    assert back.nbytes == monitor.nbytes
    assert back.remedy_ == monitor.remedy_


@pytest.mark.parametrize("build", builders())
def test_scoring_before_fitting_is_a_clear_error(build, unseen):
    with pytest.raises(NotFittedError, match="fit"):
        build().score(unseen)


@pytest.mark.parametrize("build", builders())
def test_a_failed_fit_leaves_an_unfitted_monitor(build, training, unseen):
    monitor = build()
    broken = Trace(training.logits * torch.nan, training.features, training.labels, training.inputs)
    with pytest.raises(InputError, match="finite logits"):
        monitor.fit([training[:100], broken])
    with pytest.raises(NotFittedError):
        monitor.score(unseen)
    with pytest.raises(InputError, match="got none"):
        monitor.fit([])


@pytest.mark.parametrize("build", builders())
def test_features_that_are_not_finite_are_refused_at_fit(build, training):
    monitor = build()
    if monitor.layers:
        features = training.layer("penultimate").clone()
        features[5, 2] = torch.nan
        broken = Trace(training.logits, {"penultimate": features}, training.labels, training.inputs)
        with pytest.raises(InputError, match="finite penultimate"):
            monitor.fit(broken)


@pytest.mark.parametrize("build", builders())
def test_an_unknown_layer_is_named_with_those_there_are(build, training):
    monitor = build()
    if monitor.layers:
        other = Trace(training.logits, {"conv": training.layer("penultimate")}, training.labels)
        with pytest.raises(InputError, match=r"'penultimate'.*\['conv'\]"):
            monitor.fit(other)


@pytest.mark.parametrize("build", builders())
@pytest.mark.parametrize("broken", [torch.nan, torch.inf, -torch.inf])
def test_a_row_that_is_not_finite_never_raises_nor_touches_the_others(build, broken, fitted, unseen):
    monitor = fitted(build)
    logits, features = unseen.logits.clone(), unseen.layer("penultimate").clone()
    logits[0], features[1], features[2, 0] = broken, broken, broken
    scores = monitor.score(Trace(logits, {"penultimate": features}, inputs=unseen.inputs))
    assert same(scores[3:], monitor.score(unseen)[3:])


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("build", builders())
def test_a_fit_that_fails_in_any_way_leaves_nothing_that_looks_fitted(build, training, failure):
    monitor = build().fit(training)

    def broken():
        yield training[:100]
        raise failure("a disk, a lost connection, or Ctrl-C")

    with pytest.raises(failure):
        monitor.fit(broken())
    with pytest.raises(NotFittedError, match="call fit"):
        monitor.score(training)
    for member in getattr(monitor, "members", ()):
        with pytest.raises(NotFittedError):
            member.score(training)


@pytest.mark.parametrize("build", builders())
def test_the_fingerprint_is_that_of_the_fitted_state(build, training, fitted, tmp_path):
    monitor = fitted(build)
    if type(monitor).__name__ in CANNOT_BE_SAVED:
        return
    assert build().fit(training).fingerprint == monitor.fingerprint
    assay.save(monitor, tmp_path / "monitor")
    back = assay.load(tmp_path / "monitor", network=[NETWORK, SECOND])
    assert back.fingerprint == monitor.fingerprint
    assert build().fingerprint != monitor.fingerprint
    back.score(training)
    assert back.fingerprint == monitor.fingerprint
