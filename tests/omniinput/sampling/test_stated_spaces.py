"""A space one can state: prompts, allowed tokens, sequences that end, nested and half-precision models."""

import math

import numpy as np
import pytest
import torch
from exact import TinyTransformer, log_density_of, within

import assay
from assay.errors import InputError
from assay.omniinput.sampling.space import InputSpace

VALUES, LENGTH = 6, 4
MODEL = TinyTransformer(values=VALUES, length=8, seed=3)
EVERY = torch.cartesian_prod(*[torch.arange(VALUES)] * LENGTH)


def plain_outputs(prompt, sequences):
    """z of each sequence after the prompt, token by token, from whole forwards."""
    whole = torch.cat([torch.tensor(prompt).expand(len(sequences), -1), sequences], dim=1)
    with torch.no_grad():
        log_probs = torch.log_softmax(MODEL(whole[:, :-1]).double(), dim=2)
    chosen = log_probs.gather(2, whole[:, 1:, None])[:, :, 0]
    return chosen[:, len(prompt) - 1 :]


def sampled(lm, outputs, budget=16_000, sampler="auto"):
    edges = np.linspace(outputs.min() - 1e-3, outputs.max() + 1e-3, 7)
    dist = assay.sample_outputs(lm, bins=edges, budget=budget, seed=0, sampler=sampler)
    return dist, log_density_of(outputs, edges)


@pytest.mark.parametrize("sampler", ["importance", "tempering"])
def test_a_prompt_and_allowed_tokens_equal_their_enumeration(sampler):
    prompt, allowed = [2, 0, 5], [1, 3, 4]
    lm = assay.CausalLM(MODEL, VALUES, LENGTH, prompt=prompt, allowed=allowed)
    inside = EVERY[torch.isin(EVERY, torch.tensor(allowed)).all(dim=1)]
    outputs = -plain_outputs(prompt, inside).sum(dim=1)
    assert torch.allclose(lm.negative_log_likelihood(inside), outputs, atol=1e-5)
    assert lm.space.log_size == pytest.approx(4 * math.log(3))
    dist, exact = sampled(lm, outputs.numpy(), sampler=sampler)
    assert within(dist, exact, 4) == 1.0
    # 81 inputs are seen again and again; errors in nats are those of the counts of visits.
    assert np.nanmax(np.abs(dist.log_density - exact)) < (0.1 if sampler == "importance" else 0.4)
    assert set(dist.kept.inputs.flatten().tolist()) <= set(allowed)
    forbidding = assay.CausalLM(MODEL, VALUES, LENGTH, prompt=prompt, forbidden=[0, 2, 5])
    assert torch.equal(forbidding.space.allowed, lm.space.allowed)


@pytest.mark.parametrize("sampler", ["importance", "tempering"])
def test_sequences_that_end_equal_their_enumeration(sampler):
    """All sequences of up to four tokens: the end is token 0, and what follows it costs nothing."""
    lm = assay.CausalLM(MODEL, VALUES, LENGTH, prompt=[2], end=0)
    ended = (EVERY == 0).cumsum(dim=1) > 0
    valid = EVERY[((EVERY == 0) == ended).all(dim=1)]
    assert lm.space.log_size == pytest.approx(math.log(len(valid)))
    after = (valid == 0).cumsum(dim=1) > 1
    outputs = -plain_outputs([2], valid).masked_fill(after, 0.0).sum(dim=1)
    assert torch.allclose(lm.negative_log_likelihood(valid), outputs, atol=1e-5)
    assert float((-outputs).exp().sum()) == pytest.approx(1.0, rel=1e-5)
    dist, exact = sampled(lm, outputs.numpy(), sampler=sampler)
    assert within(dist, exact, 4) == 1.0
    assert np.nanmax(np.abs(dist.log_density - exact)) < (0.1 if sampler == "importance" else 0.4)
    if sampler == "importance":
        assert abs(dist.diagnostics["log_inputs_error"]) < 0.05
        assert abs(dist.diagnostics["log_likelihood_error"]) < 0.05
    kept = {tuple(row) for row in dist.kept.inputs.tolist()}
    assert kept <= {tuple(row) for row in valid.tolist()}


def test_uniform_draws_of_sequences_that_end_are_uniform():
    space = InputSpace((3,), 5, allowed=[0, 2, 4], end=4)
    drawn = space.embed(space.draw(30_000, torch.Generator().manual_seed(0)))
    found, counts = torch.unique(drawn, dim=0, return_counts=True)
    assert len(found) == 1 + 2 + 4 + 8 == round(math.exp(space.log_size))
    # Five standard errors of a share of 1 / 15.
    assert (counts / 30_000 - 1 / 15).abs().max() < 5 * math.sqrt(1 / 15 / 30_000)
    assert torch.equal(space.embed(space.extract(drawn)), drawn)


def test_a_classifier_of_tokens_is_sampled_over_the_tokens_it_may_get():
    """[CLS] word word [SEP], where the words are 2, 3 or 7 of ten values: nine inputs."""
    space = InputSpace(
        (4,), 10, template=torch.tensor([8, 0, 0, 9]), free=torch.tensor([0, 1, 1, 0]), allowed=[7, 2, 3]
    )

    def logit(inputs):
        assert (inputs[:, 0] == 8).all()
        assert (inputs[:, 3] == 9).all()
        return inputs[:, 1:3].double().sum(dim=1)

    edges = np.arange(3.5, 15.0)
    pairs = torch.cartesian_prod(torch.tensor([2, 3, 7]), torch.tensor([2, 3, 7])).sum(dim=1).double()
    dist = assay.sample_outputs(logit, space, bins=edges, budget=10_000, seed=0)
    assert within(dist, log_density_of(pairs.numpy(), edges), 4) == 1.0
    gradients = assay.sample_outputs(
        logit_of_tokens(pairs), space, bins=edges, budget=10_000, seed=0, kernel="informed", relaxed=relaxed
    )
    assert within(gradients, log_density_of(pairs.numpy(), edges), 4) == 1.0


def logit_of_tokens(pairs):
    return lambda inputs: inputs[:, 1:3].double().sum(dim=1)


def relaxed(one_hot):
    return (one_hot[:, 1:3] * torch.arange(10.0)).sum(dim=(1, 2))


def huggingface(**options):
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=7, n_positions=8, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0
    )
    model = GPT2LMHeadModel(config).eval()
    for parameter in model.parameters():
        parameter.data *= 3
    return model, assay.CausalLM.from_huggingface(model, length=4, **options)


def test_a_prompt_is_read_once_and_shared_by_all_rows():
    model, lm = huggingface(prompt=[3, 1, 6])
    seen = []
    model.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    inputs = torch.randint(7, (20, 4), generator=torch.Generator().manual_seed(0))
    found = [lm.negative_log_likelihood(inputs) for _ in range(2)][1]
    assert seen == [(1, 3), (20, 3), (20, 3)]
    with torch.no_grad():
        whole = torch.cat([torch.tensor([3, 1, 6]).expand(20, -1), inputs], dim=1)
        log_probs = torch.log_softmax(model(input_ids=whole[:, :-1]).logits.double(), dim=2)[:, 2:]
    exact = -log_probs.gather(2, inputs[:, :, None]).sum(dim=(1, 2))
    assert torch.allclose(found, exact, atol=1e-4)


def test_half_precision_is_sampled_in_its_own_precision():
    model, _ = huggingface()
    lm = assay.CausalLM.from_huggingface(model.bfloat16(), length=4, start=0)
    inputs = torch.cartesian_prod(*[torch.arange(7)] * 4)
    outputs = lm.negative_log_likelihood(inputs).numpy()
    assert np.exp(-outputs).sum() == pytest.approx(1.0, rel=0.02)
    dist, exact = sampled(lm, outputs, budget=3_000)
    # Outputs in bfloat16 vary in batches of another size, by up to a hundredth.
    assert np.nanmax(np.abs(dist.log_density - exact)) < 0.3


def test_a_nested_configuration_is_found():
    class Nested(torch.nn.Module):
        """Images and text: the vocabulary is that of the text."""

        def __init__(self):
            super().__init__()
            self.model, _ = huggingface()
            self.device = torch.device("cpu")
            self.config = type("Config", (), {})()
            self.config.text_config = self.model.config
            self.config.get_text_config = lambda decoder=False: self.model.config

        def forward(self, input_ids, past_key_values=None, use_cache=None):
            return self.model(input_ids=input_ids, past_key_values=past_key_values, use_cache=use_cache)

    lm = assay.CausalLM.from_huggingface(Nested(), length=4, start=0)
    assert lm.values == 7
    _, plain = huggingface(start=0)
    inputs = torch.randint(7, (5, 4), generator=torch.Generator().manual_seed(0))
    assert torch.allclose(lm.negative_log_likelihood(inputs), plain.negative_log_likelihood(inputs))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompt": [2, 9]}, "prompt of tokens from 0 to 5"),
        ({"prompt": []}, "prompt of tokens"),
        ({"prompt": "text"}, "tokenizer"),
        ({"prompt": [1], "start": 1}, "start or a prompt"),
        ({"allowed": []}, "allowed values"),
        ({"allowed": torch.zeros(6, dtype=torch.bool)}, "allowed values"),
        ({"allowed": [3, 6]}, "allowed values from 0 to 5"),
        ({"forbidden": list(range(6))}, "allowed values"),
        ({"forbidden": [8]}, "forbidden tokens"),
        ({"allowed": [1], "forbidden": [2]}, "got both"),
        ({"allowed": [1, 2], "end": 0}, "end value"),
    ],
)
def test_a_space_that_cannot_be_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        assay.CausalLM(MODEL, VALUES, LENGTH, **options)


def test_what_does_not_fit_a_transformers_model_is_refused():
    model, _ = huggingface()
    with pytest.raises(InputError, match="context of 8"):
        assay.CausalLM.from_huggingface(model, length=4, prompt=[1] * 6)
    with pytest.raises(InputError, match="tokenizer of at most 7"):
        assay.CausalLM.from_huggingface(model, length=4, tokenizer=list(range(9)))
    with pytest.raises(InputError, match="transformers causal"):
        assay.CausalLM.from_huggingface(torch.nn.Linear(2, 2), length=4)
    space = InputSpace((4,), 5, end=0)
    with pytest.raises(InputError, match="CausalLM for sequences that end"):
        assay.sample_outputs(lambda inputs: inputs.sum(dim=1), space, bins=4)
