"""What every monitor owes, checked for every public monitor class of `assay.monitors`.

Monitors are found by themselves and built with the values in ARGUMENTS where they need some; further ways to
build a monitor worth testing have a line in VARIANTS. What a monitor says it needs (`monitor.needs`) and what
it keeps (`monitor.metadata`) are compared with what it does.
"""

import inspect
import math
from collections import Counter
from functools import partial

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import assay
from assay import Network, Trace, monitors
from assay.errors import InputError, NotFittedError
from assay.monitors import Energy, Monitor
from assay.monitors.metadata import Labels

CLASSES = 3
FITTED, FEATURES = 600, 64


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
    "allowed": lambda: [0, 1],
    "epochs": lambda: 2,
    "frequencies": lambda: 40,
    "high": lambda: 0.9,
    "layers": lambda: ["penultimate"],
    "low": lambda: 0.0,
    "members": lambda: [Energy(), monitors.Mahalanobis()],
    "network": lambda: NETWORK,
    "networks": lambda: [NETWORK, SECOND],
    "predicate": lambda: lambda trace: trace.known_inputs.flatten(1).amax(dim=1) > 1,
}
"""By name: values for arguments that have no default, and for those whose default is slow."""

SLOW = {"epochs", "frequencies"}

VARIANTS = {
    "ASH-B": lambda: monitors.ASH(variant="B", percentile=60),
    "ASH-P": lambda: monitors.ASH(variant="P", percentile=60),
    "AllOf-abstraction": lambda: monitors.AllOf([Energy(), monitors.GaussianInterval()]),
    "ODIN-still": lambda: monitors.ODIN(NETWORK, magnitude=0.0),
    "Reconstruction-per-class": lambda: monitors.Reconstruction(per_class=True, epochs=1),
    "Rule-logits": lambda: monitors.Rule(lambda trace: trace.logits[:, 0] > 0.5, needs_inputs=False),
    "AnyOf-inputs": lambda: monitors.AnyOf([Energy(), monitors.InputRange(low=0.0, high=0.9)]),
    "Mahalanobis-per-class": lambda: monitors.Mahalanobis(covariance="per_class"),
    "Mahalanobis-ledoit-wolf": lambda: monitors.Mahalanobis(estimator="ledoit_wolf"),
    "Mahalanobis-perturbed": lambda: monitors.Mahalanobis(network=NETWORK, magnitude=0.01),
    "OpenMax-limited": lambda: monitors.OpenMax(tail=5, top=2, limit=20),
    "RelativeMahalanobis-oas": lambda: monitors.RelativeMahalanobis(estimator="oas"),
    "KNN-sampled": lambda: monitors.KNN(k=3, limit=20),
    "ReAct-KLMatching": lambda: monitors.ReAct(monitors.KLMatching(), limit=40),
}


def public_monitors():
    classes = [getattr(monitors, name) for name in monitors.__all__]
    return [
        cls for cls in classes if inspect.isclass(cls) and issubclass(cls, Monitor) and cls is not Monitor
    ]


def arguments(cls):
    """The names of the arguments a class is built with here: those without a default, and slow ones."""
    parameters = inspect.signature(cls).parameters.values()
    return [
        parameter.name
        for parameter in parameters
        if parameter.default is inspect.Parameter.empty or parameter.name in SLOW
    ]


def build_by_name(cls):
    return cls(**{name: ARGUMENTS[name]() for name in arguments(cls)})


def builders():
    built = {cls.__name__: partial(build_by_name, cls) for cls in public_monitors()}
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
def wide():
    """A Trace whose features decide its logits linearly, as ViM and ReAct need."""
    generator = torch.Generator().manual_seed(5)
    features = torch.randn(FITTED, FEATURES, generator=generator)
    logits = features @ torch.randn(FEATURES, 5, generator=generator)
    inputs = images(FITTED, seed=6)
    return Trace(logits, {"penultimate": features}, logits.argmax(dim=1), inputs)


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


@pytest.mark.parametrize("cls", public_monitors())
def test_every_public_monitor_can_be_built_and_says_what_it_is(cls):
    missing = set(arguments(cls)) - set(ARGUMENTS)
    assert not missing, f"{cls.__name__} needs {missing}: add a line to ARGUMENTS"
    metadata = vars(cls).get("metadata")
    assert metadata is not None, f"{cls.__name__} has no metadata of its own"
    assert metadata.score
    assert bool(metadata.paper) == (metadata.year is not None)


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
def test_fits_of_any_split_merge_into_the_fit_of_all_rows(build, fitted, training, unseen, tmp_path):
    whole = fitted(build)
    owners = torch.randint(0, 3, (len(training),), generator=torch.Generator().manual_seed(8))
    parts = [training[owners == number] for number in range(3)]
    if whole.merge_obstacle:
        with pytest.raises(InputError, match=f"whose fits merge, got .*{whole.merge_obstacle[:20]}"):
            build().fit(parts[0]).merge(build().fit(parts[1]))
        return
    one_by_one = build().fit(parts[0]).merge(build().fit(parts[1])).merge(build().fit(parts[2]))
    others = [build().fit(part) for part in (parts[2], parts[0], parts[1])]
    if not whole.needs.user_code:  # on another machine
        for number, monitor in enumerate(others):
            assay.save(monitor, tmp_path / str(number), mergeable=True)
        others = [assay.load(tmp_path / str(number), network=[NETWORK, SECOND]) for number in range(3)]
    for merged in (one_by_one, others[0].merge(*others[1:])):
        assert same(merged.score(unseen), whole.score(unseen))
        assert merged.nbytes == whole.nbytes
        assert merged.remedy_ == whole.remedy_


@pytest.mark.parametrize("build", builders())
def test_what_does_not_belong_together_is_not_merged(build, fitted, training, unseen, tmp_path):
    monitor = fitted(build)
    if monitor.merge_obstacle:
        return
    with pytest.raises(InputError, match="fit both alike"):
        monitor.merge(monitors.Entropy() if type(monitor) is not monitors.Entropy else Energy())
    with pytest.raises(NotFittedError):
        monitor.merge(build())
    learns = monitor._known_fits()
    if learns:
        for again in (monitor, build().fit(training)):
            with pytest.raises(InputError, match="merged already"):
                monitor.merge(again)
    if learns and not monitor.needs.user_code:
        assay.save(monitor, tmp_path / "shipped")
        with pytest.raises(InputError, match="mergeable=True"):
            monitor.merge(assay.load(tmp_path / "shipped", network=[NETWORK, SECOND]))
    logits = torch.cat([training.logits, training.logits[:, :1]], dim=1)
    if not monitor.layers and not monitor.needs.inputs:
        with pytest.raises(InputError, match=f"with {CLASSES} classes .*, got {CLASSES + 1}"):
            monitor.merge(build().fit(Trace(logits, training.features, training.labels)))


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
    if monitor.needs.user_code:
        with pytest.raises(assay.AssayError, match="can be saved"):
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
    if monitor.needs.user_code:
        return
    assert build().fit(training).fingerprint == monitor.fingerprint
    assay.save(monitor, tmp_path / "monitor")
    back = assay.load(tmp_path / "monitor", network=[NETWORK, SECOND])
    assert back.fingerprint == monitor.fingerprint
    assert build().fingerprint != monitor.fingerprint
    back.score(training)
    assert back.fingerprint == monitor.fingerprint


WRAPPED = {"monitor", "members"}


def learned(value):
    """The fitted state as plain values, that of wrapped monitors included."""
    if isinstance(value, Monitor):
        state = vars(value).items()
        return {name: learned(part) for name, part in state if name.endswith("_") or name in WRAPPED}
    if isinstance(value, dict):
        return {key: learned(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [learned(part) for part in value]
    return value.tolist() if isinstance(value, torch.Tensor) else value


@pytest.mark.parametrize("build", builders())
def test_labels_are_used_as_the_metadata_say(build, wide):
    monitor = build()
    unlabelled = Trace(wide.logits, wide.features, inputs=wide.inputs)
    mislabelled = Trace(wide.logits, wide.features, wide.labels.roll(1), wide.inputs)
    if monitor.needs.labels is Labels.REQUIRED:
        with pytest.raises(InputError, match="labels"):
            monitor.fit(unlabelled)
        return
    alike = learned(monitor.fit(unlabelled)) == learned(build().fit(mislabelled))
    assert alike == (monitor.needs.labels is Labels.UNUSED)


@pytest.mark.parametrize("build", builders())
def test_inputs_are_read_as_the_metadata_say(build, fitted, training, unseen):
    monitor, fresh = fitted(build), build()
    without = Trace(unseen.logits, unseen.features)
    if monitor.needs.inputs:
        with pytest.raises(InputError, match="with inputs"):
            monitor.score(without)
    else:
        assert torch.equal(monitor.score(without), monitor.score(unseen))
    stripped = Trace(training.logits, training.features, training.labels)
    if monitor.needs.inputs_in_fit:
        with pytest.raises(InputError, match="with inputs"):
            fresh.fit(stripped)
    else:
        assert torch.equal(fresh.fit(stripped).score(unseen), monitor.score(unseen))


@pytest.mark.parametrize("build", builders())
def test_features_are_read_from_the_layers_it_names_alone(build, fitted, unseen):
    monitor = fitted(build)
    if not monitor.layers:
        assert torch.equal(monitor.score(Trace(unseen.logits, inputs=unseen.inputs)), monitor.score(unseen))


@pytest.mark.parametrize("build", builders())
def test_passes_through_a_network_are_those_the_metadata_count(build, fitted, unseen):
    monitor, rows = fitted(build), Counter()
    hooks = []
    for network in (NETWORK, SECOND):
        first = network.module[0]
        hooks += [
            first.register_forward_hook(lambda *call: rows.update(forward=len(call[2]))),
            first.register_full_backward_hook(lambda *call: rows.update(backward=len(call[2][0]))),
        ]
    monitor.score(unseen)
    for hook in hooks:
        hook.remove()
    for direction in ("forward", "backward"):
        stated = evaluated(getattr(monitor.needs, direction) or "0", monitor)
        assert rows[direction] == len(unseen) * stated


def evaluated(expression, monitor, **symbols):
    names = {name: getattr(monitor, name) for name in inspect.signature(type(monitor)).parameters}
    return eval(expression, {"__builtins__": {"len": len}}, names | symbols)


def directions(monitor):
    return monitor.axes_.shape[-1] if hasattr(monitor, "axes_") else 0


@pytest.mark.parametrize("cls", public_monitors())
def test_the_state_takes_the_bytes_the_metadata_say(cls, wide):
    monitor = build_by_name(cls).fit(wide)
    wrapped = [getattr(monitor, "monitor", None), *getattr(monitor, "members", [])]
    beside = sum(inner.nbytes for inner in wrapped if isinstance(inner, Monitor))
    kept = len(getattr(monitor, "reference_", [range(FITTED)])[0])
    trained = sum(
        weight.numel()
        for networks in (getattr(monitor, "reconstructors_", {}), getattr(monitor, "discriminators_", {}))
        for weights in networks.values()
        for weight in weights.values()
    )
    symbols = {"C": 5, "d": FEATURES, "M": kept, "W": trained, "q": directions(monitor)}
    stated = evaluated(cls.metadata.state or "0", monitor, **symbols)
    assert math.isclose(monitor.nbytes - beside, stated, rel_tol=0.1, abs_tol=64)


@pytest.mark.parametrize("cls", public_monitors())
def test_matrix_products_cost_no_more_than_the_metadata_say(cls, wide):
    monitor, metadata = build_by_name(cls), cls.metadata
    if metadata.needs.forward or "P" in metadata.cost or hasattr(monitor, "members"):
        pytest.skip("the cost of a network or of other monitors comes on top")
    for run, expression in ((monitor.fit, metadata.fit), (monitor.score, metadata.cost)):
        with FlopCounterMode(display=False) as counter:
            run(wide)
        symbols = {"N": FITTED, "M": FITTED, "C": 5, "d": FEATURES, "v": wide.inputs[0].numel()}
        symbols["q"] = directions(monitor)
        # A multiplication and an addition each, and lower terms.
        assert counter.get_total_flops() <= 3 * evaluated(expression or "0", monitor, **symbols)
