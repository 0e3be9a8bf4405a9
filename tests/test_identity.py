"""One identity for everything: it changes with whatever an answer depends on, and with nothing else."""

import copy
import functools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import assay
from assay import Guard, Network, Trace, identity
from assay.errors import InputError
from assay.identity import digest, module_identity
from assay.monitors import ActivationBox, ActivationPattern, AnyOf, Energy, Rule, adapt


def module(seed=0):
    torch.manual_seed(seed)
    layers = [
        nn.Conv2d(1, 3, 3),
        nn.BatchNorm2d(3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(48, 5),
        nn.Linear(5, 3),
    ]
    return nn.Sequential(*layers)


def images(count, seed=0):
    return torch.rand(count, 1, 6, 6, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def network():
    return Network(module())


leaves = st.none() | st.booleans() | st.integers() | st.text() | st.floats()
trees = st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)


@given(trees, trees)
def test_two_trees_share_a_digest_only_if_they_are_the_same(one, other):
    # `repr` of sorted items tells True from 1 and 1 from 1.0, as the digest must.
    assert (digest(one) == digest(other)) == (shown(one) == shown(other))


def shown(tree):
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{key!r}: {shown(tree[key])}" for key in sorted(tree)) + "}"
    return "[" + ", ".join(map(shown, tree)) + "]" if isinstance(tree, list) else repr(tree)


def test_tensors_and_arrays_count_by_type_shape_and_every_value():
    values = torch.arange(12.0)
    same = [values.reshape(3, 4), values.reshape(3, 4).t().contiguous().t(), values.reshape(3, 4).clone()]
    assert len({digest(tensor) for tensor in same}) == 1
    others = [values, values.reshape(4, 3), values.reshape(3, 4).double(), values.reshape(3, 4).flip(0)]
    others += [values.reshape(3, 4).numpy(), values[:0], torch.zeros(0, 4), torch.zeros(())]
    assert len({digest(tensor) for tensor in [*others, same[0]]}) == len(others) + 1
    assert digest(np.arange(6).reshape(2, 3).T) == digest(np.ascontiguousarray(np.arange(6).reshape(2, 3).T))
    with pytest.raises(InputError, match="got object"):
        digest(object())


WRITES = {
    "load_state_dict": lambda layers: layers.load_state_dict(module(1).state_dict()),
    "in place": lambda layers: layers[4].weight.detach().add_(1e-3),
    "through .data": lambda layers: layers[4].weight.data[0, 0].add_(1e-3),
    "through NumPy": lambda layers: layers[4].weight.detach().numpy().__setitem__((0, 0), 9.0),
    "other memory": lambda layers: setattr(layers[4].weight, "data", layers[4].weight.data + 1),
    "another parameter": lambda layers: setattr(layers[4], "weight", nn.Parameter(torch.ones(5, 48))),
    "an exchange of two weights": lambda layers: layers[4].weight.detach().copy_(layers[4].weight.flip(0)),
    "an exchange through .data": lambda layers: layers[4].weight.data.copy_(layers[4].weight.data.flip(0)),
    "a buffer": lambda layers: layers[1].running_mean.add_(1),
    "another layer": lambda layers: layers.__setitem__(2, nn.Tanh()),
    "another stride": lambda layers: setattr(layers[0], "stride", (2, 2)),
}


@pytest.mark.parametrize("rows", [(0, 1), (0, 1023), (3, 1000)])
def test_large_tensors_are_known_by_the_place_of_every_weight(rows):
    """Each row of the weight is as long as one of the table that the checksum sums up."""
    layer = nn.Linear(2048, 1024)
    before = module_identity(layer)
    one, other = rows
    layer.weight.data[[one, other]] = layer.weight.data[[other, one]].clone()
    after = module_identity(layer)
    assert after != before
    layer.weight.data[one] = layer.weight.data[one].roll(1)
    assert module_identity(layer) not in (before, after)


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_whatever_changes_the_model_changes_its_identity_however_it_was_written(write):
    layers = module()
    network = Network(layers)
    before = network.fingerprint
    assert network.fingerprint == before
    write(layers)
    assert network.fingerprint != before
    assert network.fingerprint == Network(copy.deepcopy(layers)).fingerprint  # as hashed for the first time


def test_a_training_step_changes_it(network):
    before = network.fingerprint
    optimizer = torch.optim.SGD(network.module.parameters(), lr=0.1)
    network.module(images(4)).square().sum().backward()
    optimizer.step()
    assert network.fingerprint != before


def test_running_copying_compiling_and_watching_do_not_change_it(network):
    before = network.fingerprint
    network.observe(images(8))
    assert network.fingerprint == before
    assert Network(module(), layers=("0", "penultimate"), batch_size=3).fingerprint == before
    assert network.watching(["0"]).fingerprint == before
    compiled = torch.compile(network.module, backend="eager")
    assert Network(compiled, layers="0").fingerprint == before
    inside = module()
    inside[0] = torch.compile(inside[0], backend="eager")
    assert module_identity(inside) == module_identity(module())
    last = module().to(memory_format=torch.channels_last)
    assert module_identity(last) == module_identity(module())


def test_layers_that_differ_in_a_setting_alone_are_other_models():
    def network(*layers):
        torch.manual_seed(0)
        return Network(nn.Sequential(nn.Linear(4, 3), *layers, nn.Linear(3, 2))).fingerprint

    settings = [
        nn.LeakyReLU(0.1),
        nn.LeakyReLU(0.2),
        nn.ELU(0.1),
        nn.BatchNorm1d(3),
        nn.BatchNorm1d(3, eps=1),
    ]
    assert len({network(layer) for layer in settings}) == len(settings)
    assert network(nn.LeakyReLU(0.1)) == network(nn.LeakyReLU(0.1))


class Addressed(nn.Linear):
    """A layer that prints an object that has no name of its own."""

    def extra_repr(self):
        return f"{super().extra_repr()}, helper={object()}"


def test_addresses_in_memory_are_no_part_of_a_model():
    torch.manual_seed(0)
    layer = Addressed(3, 2)
    before, kept = module_identity(layer), object()  # which takes the address of the last one
    assert module_identity(layer) == before, kept


def test_pooling_is_part_of_what_features_are(network):
    assert Network(module(), pool="flatten").fingerprint != network.fingerprint
    assert Network(module(), pool={"0": "flatten"}).fingerprint != network.fingerprint
    assert Network(module(), pool=largest).fingerprint != Network(module(), pool=smallest).fingerprint


def largest(output):
    return output.flatten(1).amax(dim=1, keepdim=True)


def smallest(output):
    return output.flatten(1).amin(dim=1, keepdim=True)


@pytest.mark.parametrize(
    "nameless", [lambda output: output[:, 0].flatten(1), functools.partial(torch.flatten, start_dim=1)]
)
def test_a_pool_function_needs_a_name_to_be_known_by(nameless):
    network = Network(module(), layers="0", pool={"0": nameless})
    network.observe(images(2))
    with pytest.raises(InputError, match="expected a pool function with a name"):
        network.fingerprint  # noqa: B018


def test_what_did_not_change_is_not_hashed_again(network, monkeypatch):
    """Only names with the hashes of their tensors, and those of what was written to."""
    before = network.fingerprint
    hashed = []
    once = identity._hash
    monkeypatch.setattr(identity, "_hash", lambda content: hashed.append(len(content)) or once(content))
    assert network.fingerprint == before
    assert len(hashed) == 2  # classes and names with the hashes of their tensors, and that with the settings
    network.module[4].bias.data.add_(1)
    assert network.fingerprint != before
    assert hashed.count(5 * 4) == 1  # the five numbers of the bias, and no other tensor
    assert len(hashed) == 5


def test_tensors_that_are_gone_are_forgotten():
    known = len(identity._cached_hashes)
    digest(torch.ones(3))
    assert len(identity._cached_hashes) == known


def trace(seed, rows=40):
    return Network(module(), layers="penultimate").observe(images(rows, seed))


@pytest.mark.parametrize(
    "build", [ActivationBox, ActivationPattern, lambda: AnyOf([ActivationBox(), Energy()])]
)
def test_a_monitor_is_its_class_parameters_and_fitted_state(build, tmp_path):
    fitted = build().fit(trace(1))
    assert build().fit(trace(1)).fingerprint == fitted.fingerprint
    assert build().fit(trace(2)).fingerprint != fitted.fingerprint
    assert build().fingerprint != fitted.fingerprint
    assay.save(fitted, tmp_path / "monitor")
    assert assay.load(tmp_path / "monitor").fingerprint == fitted.fingerprint
    assert ActivationBox().fit(trace(1)).fingerprint != ActivationPattern().fit(trace(1)).fingerprint
    assert Energy(temperature=2.0).fit(trace(1)).fingerprint != Energy().fit(trace(1)).fingerprint


def test_a_guard_is_network_fitted_monitor_and_threshold(network, tmp_path):
    one, other = (ActivationPattern().fit(trace(seed)) for seed in (1, 2))
    guard = Guard(network, one, threshold=0.0)
    network.observe(images(2))
    guard.export(tmp_path / "guard.onnx")
    assert assay.OnnxGuard(tmp_path / "guard.onnx").fingerprint == guard.fingerprint
    assay.save(guard, tmp_path / "guard")
    assert assay.load(tmp_path / "guard", network=Network(module())).fingerprint == guard.fingerprint
    others = [Guard(network, other, 0.0), Guard(network, one, 1.0), Guard(network, one, [0.0] * 3)]
    others.append(Guard(Network(module(1)), one, 0.0))
    assert len({each.fingerprint for each in [guard, *others]}) == 5


class Nearest:
    """A detector of another library."""

    def fit_features(self, z, y):
        self.centre = z.mean(dim=0)

    def predict_features(self, z):
        return (z - self.centre).norm(dim=1)


def test_code_is_known_by_the_name_its_user_gives_it():
    def hesitant(trace: Trace):
        return trace.probabilities.amax(dim=1) < 0.9

    for nameless in (Rule(hesitant), adapt(Nearest()), AnyOf([Rule(hesitant), Energy()])):
        with pytest.raises(InputError, match="pass name="):
            nameless.fit(network_trace()).fingerprint  # noqa: B018
    rules = [Rule(hesitant, name=name) for name in ("hesitant", "sure")]
    rules.append(Rule(hesitant, name="sure", layers=["penultimate"]))
    assert len({rule.fit(network_trace()).fingerprint for rule in rules}) == 3
    assert Rule(hesitant, name="sure").fit(network_trace()).fingerprint == rules[1].fingerprint
    detectors = [adapt(Nearest(), name="nearest").fit(trace(seed)) for seed in (1, 1, 2)]
    assert detectors[0].fingerprint == detectors[1].fingerprint != detectors[2].fingerprint


def network_trace():
    return Network(module()).observe(images(40), keep_inputs=True)
