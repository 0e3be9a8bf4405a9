"""A run on disk is taken up by the model that began it, and by no other."""

import contextlib
from functools import partial

import numpy as np
import pytest
import torch
from exact import markov_table
from torch import nn

import assay
from assay.errors import InputError
from assay.omniinput.sampling.model_identity import model_identity

SPACE = assay.InputSpace((6,), 3)
EDGES = np.arange(14) - 0.5
TOKENS, LENGTH = 5, 6


def total(inputs):
    return inputs.double().sum(dim=1)


def weighted(inputs):
    return (inputs * torch.tensor([2, 1, 1, 1, 1, 0])).double().sum(dim=1)


def nearly(inputs):
    """Another model that differs for one input in three only, and by little."""
    return total(inputs) + 0.01 * (inputs[:, 0] == 2)


class Sum(nn.Module):
    """A module whose output is the total, give or take its weights."""

    def __init__(self, weight=1.0):
        super().__init__()
        self.head = nn.Linear(6, 1, bias=False)
        nn.init.constant_(self.head.weight, weight)

    def forward(self, inputs):
        return self.head(inputs.float())[:, 0]


def sampled(function, path, budget=4_000, **options):
    return assay.sample_outputs(function, SPACE, bins=EDGES, budget=budget, checkpoint=path, **options)


@pytest.mark.parametrize("sampler", ["tempering", "multicanonical"])
@pytest.mark.parametrize("other", [weighted, nearly, lambda inputs: total(inputs) * torch.nan])
def test_another_function_does_not_take_up_the_run(tmp_path, sampler, other):
    path = tmp_path / "run.safetensors"
    first = sampled(total, path, sampler=sampler)
    with pytest.raises(
        InputError, match=f"{path} to contain a run of this model, got that of another"
    ) as caught:
        sampled(other, path, sampler=sampler)
    assert not hasattr(caught.value, "partial")  # which the command line would save
    again = sampled(total, path, sampler=sampler)
    assert np.array_equal(again.log_density, first.log_density, equal_nan=True)
    assert again.diagnostics["evaluations"] == first.diagnostics["evaluations"]


def test_outputs_that_vary_little_around_a_large_number_are_told_apart(tmp_path):
    """The size of the outputs says nothing about how far two models differ; their range does."""
    options = {"bins": 1000 + 0.01 * EDGES, "budget": 4_000, "checkpoint": tmp_path / "run"}
    for function, refused in ((total, False), (weighted, True), (total, False)):
        with pytest.raises(InputError, match="that of another") if refused else contextlib.nullcontext():
            assay.sample_outputs(lambda x, f=function: 1000 + 0.01 * f(x), SPACE, **options)


@pytest.mark.parametrize("sampler", ["tempering", "multicanonical"])
def test_a_module_trained_on_does_not_take_up_its_earlier_run(tmp_path, sampler):
    path, module = tmp_path / "run.safetensors", Sum()
    sampled(module, path, sampler=sampler)
    sampled(lambda inputs: module(inputs), path, sampler=sampler)  # the same, wrapped
    with torch.no_grad():
        module.head.weight += 1e-7  # what outputs alone would not show
    for function in (module, lambda inputs: module(inputs)):
        with pytest.raises(InputError, match="got that of another: its weights differ"):
            sampled(function, path, sampler=sampler)


def test_the_run_goes_on_after_outputs_were_rounded_otherwise(tmp_path):
    """As on another machine: each output off by a part in 10^5."""
    path = tmp_path / "run.safetensors"
    sampled(total, path)
    more = sampled(lambda inputs: total(inputs) * (1 + 1e-5), path, budget=5_000)
    assert more.diagnostics["evaluations"] > 4_000


def table(seed):
    return torch.from_numpy(markov_table(TOKENS, seed=seed)).float()


def language_model(logits, start):
    return assay.CausalLM(logits, TOKENS, LENGTH, start=start, cached=lambda t, c: (logits(t), t))


class Killed(Exception):
    """Stands for a kill in the middle of a model call."""


def dying(function, calls):
    left = [calls]

    def called(tokens):
        left[0] -= 1
        if not left[0]:
            raise Killed
        return function(tokens)

    return called


@pytest.mark.parametrize("sampler", ["auto", "importance", "tempering", "multicanonical"])
@pytest.mark.parametrize("calls", [30, 150, None], ids=["pilot", "killed", "finished"])
def test_another_language_model_does_not_take_up_the_run(tmp_path, sampler, calls):
    path, one, other = tmp_path / "run.safetensors", table(0), table(1)
    options = {"bins": np.arange(2.0, 22.0, 2.0), "budget": 1_500, "sampler": sampler, "checkpoint": path}
    if calls is None:
        assay.sample_outputs(language_model(lambda tokens: one[tokens], one[-1]), **options)
    else:
        stopped = language_model(dying(lambda tokens: one[tokens], calls), one[-1])
        with pytest.raises(Killed):
            assay.sample_outputs(stopped, **options, checkpoint_every=0.0)
    for wrong in (
        language_model(lambda tokens: other[tokens], one[-1]),
        language_model(one.__getitem__, other[-1]),
    ):
        with pytest.raises(InputError, match="inputs kept there have another output, such as"):
            assay.sample_outputs(wrong, **options)
    assay.sample_outputs(language_model(lambda tokens: one[tokens], one[-1]), **options)


def test_a_language_model_trained_on_does_not_take_up_its_earlier_run(tmp_path):
    embedding = nn.Embedding.from_pretrained(table(0), freeze=False)
    lm = assay.CausalLM(embedding, TOKENS, LENGTH)
    options = {"bins": np.arange(2.0, 22.0, 2.0), "budget": 2_000, "checkpoint": tmp_path / "run"}
    assay.sample_outputs(lm, **options)
    assay.sample_outputs(lm, **options)
    with torch.no_grad():
        embedding.weight[0, 0] += 1e-6
    with pytest.raises(InputError, match="its weights differ"):
        assay.sample_outputs(lm, **options)


def test_every_ladder_knows_its_model(tmp_path):
    sampled(Sum(), tmp_path / "run", ladders=2)
    with pytest.raises(InputError, match=r"run\.0 to contain a run of this model"):
        sampled(Sum(1.5), tmp_path / "run", ladders=2)


MODULE = Sum()


class Held:
    def __init__(self, module):
        self.parts = {"module": module}

    def outputs(self, inputs):
        return self.parts["module"](inputs)

    __call__ = outputs


def scaled(inputs, by, module):
    return module(inputs) * by


def by_default(inputs, module=MODULE):
    return module(inputs)


WAYS = {
    "itself": lambda module: module,
    "a method": lambda module: module.forward,
    "a closure": lambda module: lambda inputs: module(inputs),
    "a closure over a closure": lambda module: (lambda inner: lambda inputs: inner(inputs))(
        lambda x: module(x)
    ),
    "a partial": lambda module: partial(scaled, by=2.0, module=module),
    "an object": lambda module: Held(module),
    "a method of an object": lambda module: Held(module).outputs,
    "a list": lambda module: (lambda modules: lambda inputs: modules[0](inputs))([module]),
    "a language model": lambda module: assay.CausalLM(module, TOKENS, LENGTH),
}


@pytest.mark.parametrize("wrap", WAYS.values(), ids=WAYS)
def test_the_module_is_found_however_it_is_wrapped(wrap):
    assert model_identity(wrap(Sum())) == model_identity(Sum())
    assert model_identity(wrap(Sum())) == model_identity(wrap(Sum()))
    assert model_identity(wrap(Sum(2.0))) != model_identity(wrap(Sum()))


def test_globals_defaults_networks_and_a_second_function_count_too():
    assert (
        model_identity(lambda inputs: MODULE(inputs)) == model_identity(by_default) == model_identity(Sum())
    )
    network = assay.Network(nn.Linear(6, 2))
    assert model_identity(lambda inputs: network(inputs)[:, 0]) == model_identity(network)
    assert model_identity(network) is not None
    assert model_identity(Sum(), Sum(2.0)) != model_identity(Sum())


def test_where_there_are_no_weights_nothing_is_claimed():
    later = None
    functions = [total, Held(nn.ReLU()), nn.ReLU(), None, assay.Network.from_function(lambda x: x), unset()]
    assert {model_identity(function) for function in functions} == {later}


def unset():
    """A function over a variable without a value."""

    def function(inputs):
        return missing(inputs)

    if False:
        missing = None
    return function
