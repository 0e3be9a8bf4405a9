"""What a Network reports is what the module does, and the module is left as it was."""

import math
from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import assay
from assay.errors import InputError


class Classifier(nn.Module):
    """Its last defined Linear never runs; `head` is the last that does."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.relu = nn.ReLU()
        self.body = nn.Linear(4 * 36, 8)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(8, 3)
        self.unused = nn.Linear(8, 3)

    def forward(self, x):
        x = self.relu(self.norm(self.conv(x)))
        return self.head(self.drop(torch.tanh(self.body(x.flatten(1)))))


@pytest.fixture
def module():
    return Classifier()


@pytest.fixture
def inputs():
    return torch.rand(10, 1, 6, 6, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def labels():
    return torch.arange(10) % 3


def by_hand(module, inputs):
    module.eval()
    with torch.no_grad():
        maps = module.relu(module.norm(module.conv(inputs)))
        penultimate = torch.tanh(module.body(maps.flatten(1)))
        return maps.mean(dim=(2, 3)), penultimate, module.head(penultimate)


def test_observe_reports_what_the_module_computes(module, inputs, labels):
    trace = assay.Network(module, layers=("relu", "penultimate")).observe((inputs, labels), batch_size=4)
    maps, penultimate, logits = by_hand(module, inputs)
    assert torch.allclose(trace.features["relu"], maps, atol=1e-6)
    assert torch.allclose(trace.features["penultimate"], penultimate, atol=1e-6)
    assert torch.allclose(trace.logits, logits, atol=1e-6)
    assert torch.equal(trace.labels, labels)
    assert trace.inputs is None


class Stream(IterableDataset):
    """A dataset that does not know its length."""

    def __init__(self, *tensors):
        self.tensors = tensors

    def __iter__(self):
        return zip(*self.tensors, strict=True)


def test_every_form_of_data_gives_the_same_trace(module, inputs, labels):
    network = assay.Network(module)
    expected = network.observe((inputs, labels))
    forms = {
        "pair of arrays": (inputs.double().numpy(), labels.numpy().astype(np.int32)),
        "list pair": [inputs, labels],
        "loader": DataLoader(TensorDataset(inputs, labels), batch_size=3),
        "dataset": TensorDataset(inputs, labels),
        "stream": DataLoader(Stream(inputs, labels), batch_size=4),
        "loader of dicts": DataLoader(
            [{"x": x, "label": y} for x, y in zip(inputs, labels, strict=True)], batch_size=4
        ),
    }
    for form, data in forms.items():
        trace = network.observe(data, keep_inputs=True)
        assert torch.allclose(trace.logits, expected.logits, atol=1e-6), form
        assert torch.equal(trace.labels, labels), form
        kept = trace.inputs["x"] if form == "loader of dicts" else trace.inputs
        assert torch.allclose(kept.float(), inputs), form
    assert network.observe(inputs).labels is None


def test_inputs_in_one_piece_are_kept_without_a_copy(module, inputs):
    assert assay.Network(module).observe(inputs, keep_inputs=True).inputs.data_ptr() == inputs.data_ptr()


def test_the_module_is_left_as_it_was_also_after_an_error(module, inputs):
    module.train()
    module.norm.eval()
    modes = [part.training for part in module.modules()]
    statistics = module.norm.running_mean.clone()
    network = assay.Network(module, layers=("conv", "penultimate"))
    network.observe(inputs)
    words = r"Classifier takes such as float32 \(rows, 1, 6, 6\), got float32 \(rows, 5, 6, 6\)"
    with pytest.raises(InputError, match=words) as caught:
        network.observe(torch.rand(2, 5, 6, 6))
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert "\n" not in str(caught.value)
    assert [part.training for part in module.modules()] == modes
    assert torch.equal(module.norm.running_mean, statistics)
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())


def test_an_error_on_inputs_that_went_through_before_is_the_modules_own():
    class Moody(torch.nn.Linear):
        sick = False

        def forward(self, x):
            if self.sick:
                raise RuntimeError("out of order")
            return super().forward(x)

    module, rows = Moody(4, 2), torch.rand(3, 4)
    network = assay.Network(module)
    network.observe(rows)
    module.sick = True
    with pytest.raises(RuntimeError, match="out of order") as caught:
        network.observe(rows.double())
    assert not isinstance(caught.value, assay.AssayError)
    assert caught.value.__notes__ == ["assay: in the forward pass of Moody"]


def test_observation_leaves_no_graph_and_calls_are_differentiable(module, inputs):
    network = assay.Network(module)
    assert not network.observe(inputs).logits.requires_grad
    moving = inputs.clone().requires_grad_()
    network(moving).sum().backward()
    assert moving.grad.abs().sum() > 0


def test_gradient_is_that_of_the_objective_row_by_row(inputs, labels):
    module = nn.Sequential(nn.Flatten(), nn.Linear(36, 3, dtype=torch.float64))
    network = assay.Network(module, batch_size=4)
    gradient = network.gradient(
        inputs,
        lambda trace: nn.functional.cross_entropy(trace.logits, trace.labels, reduction="none"),
        labels,
    )
    with torch.no_grad():
        weight = module[1].weight
        residual = torch.softmax(module(inputs.double()), 1) - nn.functional.one_hot(labels, 3)
    # Closed form: W^T (softmax - onehot). Logits pass through single precision, hence 1e-6.
    assert torch.allclose(gradient.flatten(1).double(), residual @ weight, atol=1e-6)


def test_gradient_of_dict_inputs_is_that_of_the_floating_tensor():
    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(2, 2, bias=False)

        def forward(self, x, gate):
            return self.head(x * gate)

    module = Gated()
    inputs = {"x": torch.ones(3, 2), "gate": torch.tensor([[1, 0], [0, 1], [2, 2]])}
    gradient = assay.Network(module).gradient(inputs, lambda trace: trace.logits[:, 0])
    assert torch.allclose(gradient, module.head.weight[0] * inputs["gate"])
    with pytest.raises(InputError, match="one floating-point tensor"):
        assay.Network(module).gradient({"x": torch.ones(3, 2), "gate": torch.ones(3, 2)}, lambda t: t.logits)


def test_dropout_passes_are_seeded_and_do_not_depend_on_the_batch(module, inputs):
    network = assay.Network(module, batch_size=4)
    state = torch.random.get_rng_state()
    logits = network.dropout_logits(inputs, passes=200, seed=3)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(logits, network.dropout_logits(inputs, passes=200, seed=3))
    assert torch.allclose(logits[:, :1], network.dropout_logits(inputs[:1], passes=200, seed=3), atol=1e-6)
    assert not torch.allclose(logits[0], logits[1])
    # Dropout before a linear head leaves its mean unchanged; 200 masks of 8 units, so 5 standard errors.
    _, penultimate, expected = by_hand(module, inputs)
    spread = (penultimate[:, None] * module.head.weight).square().sum(-1).sqrt()
    assert ((logits.mean(0) - expected).abs() < 5 * spread / math.sqrt(200)).all()


def test_dropout_needs_dropout_layers(inputs):
    with pytest.raises(InputError, match="dropout"):
        assay.Network(nn.Sequential(nn.Flatten(), nn.Linear(36, 3))).dropout_logits(inputs, 2, 0)


Pair = namedtuple("Pair", ["logits", "extra"])


@dataclass
class Output:
    hidden: str
    scores: torch.Tensor


@pytest.mark.parametrize(
    "wrap",
    [
        lambda z: (z, "extra"),
        lambda z: {"loss": torch.zeros(()), "logits": z},
        lambda z: Pair(z, 0),
        lambda z: Output("x", z),
    ],
)
def test_logits_are_found_in_what_modules_return(wrap, inputs):
    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(36, 3)

        def forward(self, x):
            return wrap(self.head(x.flatten(1)))

    module = Wrapped()
    assert torch.allclose(assay.Network(module).observe(inputs).logits, module.head(inputs.flatten(1)))


@pytest.mark.parametrize("result", ["text", torch.zeros(10), torch.zeros(10, 1), torch.zeros(9, 3)])
def test_a_module_that_returns_no_logits_is_said(result, inputs):
    class Odd(nn.Module):
        def forward(self, x):
            return result

    with pytest.raises(InputError, match="expected"):
        assay.Network(Odd(), layers=()).observe(inputs)


def test_pooling_follows_the_stated_rule():
    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            self.line = nn.Conv1d(2, 3, 1)
            self.sequence = nn.Identity()
            self.head = nn.Linear(2, 2)

        def forward(self, x, attention_mask=None):
            self.line(x.transpose(1, 2))
            return self.head(self.sequence(x)[:, 0])

    module = Tokens()
    x = torch.arange(12.0).reshape(2, 3, 2)
    mask = torch.tensor([[1, 1, 0], [0, 1, 1]])

    def feature(layer, pool=None, data=x):
        return assay.Network(module, layer, pool=pool).observe(data).features[layer]

    masked = {"x": x, "attention_mask": mask}
    assert torch.equal(feature("sequence"), x[:, 0])
    assert torch.equal(feature("sequence", "last"), x[:, 2])
    assert torch.equal(feature("sequence", "last", masked), torch.stack([x[0, 1], x[1, 2]]))
    assert torch.equal(feature("sequence", "mean", masked), torch.stack([x[0, :2].mean(0), x[1, 1:].mean(0)]))
    assert torch.equal(feature("sequence", {"sequence": "flatten"}), x.flatten(1))
    assert torch.equal(feature("sequence", lambda value: value.amax(1)), x.amax(1))
    by_hand = module.line(x.transpose(1, 2)).mean(2)
    assert torch.allclose(feature("line"), by_hand)
    with pytest.raises(InputError, match="pool to be"):
        feature("sequence", "median")
    with pytest.raises(InputError, match="one row of features"):
        feature("sequence", lambda value: value)


def test_features_are_those_before_an_activation_in_place(inputs):
    class InPlace(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.conv = nn.Conv2d(1, 4, 3)
            self.body = nn.Linear(64, 8)
            self.head = nn.Linear(8, 3)

        def forward(self, x):
            return self.head(self.body(self.conv(x).relu_().flatten(1)).relu_())

    module = InPlace()
    trace = assay.Network(module, layers=("conv", "body")).observe(inputs)
    maps = module.conv(inputs)
    assert torch.allclose(trace.features["conv"], maps.mean(dim=(2, 3)), atol=1e-6)
    assert torch.allclose(trace.features["body"], module.body(maps.relu().flatten(1)), atol=1e-6)


def test_a_trace_shares_no_memory_with_inputs_that_were_not_asked_for(inputs):
    flat = inputs.flatten(1).clone()
    trace = assay.Network(nn.Sequential(nn.Linear(36, 3))).observe(flat)
    kept = trace.features["penultimate"].clone()
    flat.zero_()
    assert torch.equal(trace.features["penultimate"], kept)


def test_a_layer_that_does_not_exist_lists_those_that_do(module):
    with pytest.raises(InputError, match=r"\['fc'\].*'penultimate', 'conv', 'norm'"):
        assay.Network(module, layers="fc")


def test_a_layer_that_does_not_run_is_said(module, inputs):
    with pytest.raises(InputError, match="'unused' to run"):
        assay.Network(module, layers="unused").observe(inputs)
    with pytest.raises(InputError, match="a Linear layer to run"):
        assay.Network(nn.Sequential(nn.Flatten(), nn.Tanh())).observe(inputs)


def test_bad_data_gets_one_clear_sentence(module, inputs, labels):
    network = assay.Network(module)
    bad = inputs.clone()
    bad[3, 0, 0, 0] = float("nan")
    cases = [
        (inputs[:0], "got none"),
        (DataLoader(TensorDataset(inputs[:0])), "got none"),
        (bad, "NaN or infinity"),
        ((inputs, labels[:4]), "10 inputs and 4 labels"),
        ((inputs, labels + 0.5), "whole class numbers"),
        ((inputs, torch.eye(10)), "not one-hot"),
        ((inputs, labels, labels), "3 parts"),
        ((inputs * 255).byte(), "got torch.uint8"),
        ({}, "empty"),
        ({"x": inputs, "y": inputs[:2]}, "same number of rows"),
        (["some text"], "from_huggingface"),
        (torch.tensor(1.0), "single number"),
    ]
    for data, message in cases:
        with pytest.raises(InputError, match=message):
            network.observe(data)
    assert network.observe(bad, allow_nonfinite=True).logits[3].isnan().all()


def test_arguments_are_checked(module):
    with pytest.raises(InputError, match=r"torch\.nn\.Module"):
        assay.Network(lambda x: x)
    with pytest.raises(InputError, match="batch_size"):
        assay.Network(module, batch_size=0)


def test_the_fingerprint_follows_the_weights(module):
    network = assay.Network(module)
    before = network.fingerprint
    assert assay.Network(Classifier(), layers="conv").fingerprint == before
    with torch.no_grad():
        module.head.bias[0] += 1e-6
    assert network.fingerprint != before


def test_a_linear_that_is_called_by_keyword_is_heard(inputs):
    class ByKeyword(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = torch.nn.Linear(4, 5), torch.nn.Linear(5, 3)

        def forward(self, x):
            return self.last(input=self.first(input=x).relu())

    module, rows = ByKeyword(), torch.rand(7, 4)
    trace = assay.Network(module).observe(rows)
    assert torch.allclose(trace.features["penultimate"], module.first(rows).relu())
    bins = assay.Bins.from_bounds(assay.Network(module), layer="penultimate", low=0.0, high=1.0, width=1.0)
    assert bins.last >= 1
