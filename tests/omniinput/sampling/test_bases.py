"""Inputs from a base: probabilities of rare outputs equal those known by enumeration or recursion."""

import math

import numpy as np
import pytest
import torch
from exact import TinyTransformer, markov_table

import assay
from assay.errors import InputError
from assay.omniinput.sampling.bases import BaseProblem, Product, RedrawnSites, RedrawnSuffix, RedrawnToken
from assay.omniinput.sampling.kernels.chain import Tempered, init


def binomial_tail(sites, chance, least):
    return sum(math.comb(sites, k) * chance**k * (1 - chance) ** (sites - k) for k in range(least, sites + 1))


def test_a_rare_event_of_one_in_a_billion_is_found_with_its_error():
    """Ones among 30 biased bits, P(at least 17) = 3.4e-10 in closed form."""
    exact = binomial_tail(30, 0.1, 17)
    assert 5e-11 < exact < 5e-9
    weights = torch.tensor([0.9, 0.1]).expand(30, 2)
    scaled = []
    for seed in range(2):
        dist = assay.sample_outputs(
            lambda inputs: inputs.double().sum(dim=1),
            assay.InputSpace((30,), 2),
            base=weights,
            bins=[-0.5, *np.arange(2.5, 17.0), 30.5],
            budget=30_000,
            seed=seed,
        )
        found = dist.probability(above=16.5)
        scaled.append((found.log_value - math.log(exact)) / found.error)
        assert found.error < 0.5
        assert found.lower < found.value < found.upper
    # Two normal deviates: 3.5 for the larger is one in a thousand.
    assert np.abs(scaled).max() < 3.5
    assert dist.normalisation == "base"
    assert np.isnan(dist.log_counts).all()
    assert dist.summary().startswith("Of the inputs that the base draws")


def enumerated(base, inputs):
    """The probability of every input in the base of a language model."""
    return base.extras(inputs)["log_base"].sum(dim=1).exp()


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_texts_of_a_model_have_the_probabilities_of_the_model(temperature):
    """A score of the text under the model at a temperature, against all 1,296 texts."""
    model = TinyTransformer(values=6, length=6, seed=1)
    lm = assay.CausalLM(model, 6, 4, prompt=[2])
    base = assay.TextsOf(lm, temperature)
    inputs = torch.cartesian_prod(*[torch.arange(6)] * 4)
    with torch.no_grad():
        whole = torch.cat([torch.full((len(inputs), 1), 2), inputs], dim=1)
        logits = model(whole[:, :-1]).double() / temperature
    chosen = torch.log_softmax(logits, dim=2).gather(2, inputs[:, :, None]).sum(dim=(1, 2))
    shares = enumerated(base, inputs)
    assert torch.allclose(shares, chosen.exp(), rtol=1e-4)

    def score(tokens):
        return (tokens * torch.tensor([3.0, 1.0, 4.0, 1.5])).double().sum(dim=1)

    order = score(inputs).argsort()
    below = shares[order].cumsum(dim=0)
    low, high = (float(score(inputs)[order][below > share][0]) for share in (1e-3, 0.999))
    edges = np.array([-0.1, *np.linspace(low, high, 6) + 0.1, 60.0])
    exact = np.histogram(score(inputs).numpy(), edges, weights=shares.numpy())[0]
    dist = assay.sample_outputs(score, base=base, bins=edges, budget=12_000, seed=0)
    known = exact > 0
    scaled = (dist.log_density - np.log(np.where(known, exact, 1.0)))[known] / dist.error[known]
    assert np.isfinite(dist.log_density[known]).all()
    assert np.sqrt(np.mean(scaled**2)) < 2.0


@pytest.mark.parametrize("move", [RedrawnSuffix(), RedrawnToken(), RedrawnSites()])
def test_every_move_leaves_the_tempered_base_unchanged(move):
    """One step from states of the target gives states of the target: 20,000 rows over 27 or 16 inputs."""
    generator = torch.Generator().manual_seed(0)
    if isinstance(move, RedrawnSites):
        base = Product([[0.7, 0.3], [0.2, 0.8], [0.5, 0.5], [0.9, 0.1]])
        inputs = torch.cartesian_prod(*[torch.arange(2)] * 4)
        shares = torch.stack([base.shares[site, inputs[:, site]] for site in range(4)]).prod(dim=0)
    else:
        steps = torch.from_numpy(markov_table(3, seed=5)).float()
        lm = assay.CausalLM(lambda t: steps[t], 3, 3, start=steps[-1])
        base = assay.TextsOf(lm)
        inputs = torch.cartesian_prod(*[torch.arange(3)] * 3)
        shares = enumerated(base, inputs)

    def score(tokens):
        return (tokens.double() * torch.arange(1.0, tokens.shape[1] + 1)).sum(dim=1) % 4

    target = shares.double() * (-0.8 * score(inputs)).exp()
    target /= target.sum()
    rows = 20_000
    start = inputs[torch.multinomial(target, rows, replacement=True, generator=generator)]
    problem = BaseProblem(score, base.space, base=base)
    tempered = Tempered(torch.full((rows,), 0.8, dtype=torch.float64))
    state, info = move.step(init(start, problem), tempered, problem, generator)
    assert info.accepted.double().mean() > 0.3
    values = base.space.values
    number = (state.sites * values ** torch.arange(base.space.sites - 1, -1, -1)).sum(dim=1)
    found = torch.bincount(number, minlength=len(inputs)) / rows
    assert ((found - target).abs() < 5 * (target / rows).sqrt() + 1e-9).all()


def test_templates_are_filled_by_weight_and_give_texts():
    base = assay.Templates(
        ["{who} likes {what}", "{who} is here"],
        {"who": {"Ada": 3.0, "Bob": 1.0}, "what": ["tea", "rain", "logic"]},
        weights=[1.0, 3.0],
    )
    seen = []

    def length(texts):
        seen.extend(texts)
        return torch.tensor([float(len(text)) for text in texts], dtype=torch.float64)

    dist = assay.sample_outputs(length, base=base, bins=np.arange(8.5, 16.0), budget=6_000, seed=0)
    # Texts by length: "x is here" 11; "x likes tea" 13, rain 14, logic 15.
    exact = {11: 0.75, 13: 0.25 / 3, 14: 0.25 / 3, 15: 0.25 / 3}
    for size, share in exact.items():
        number = dist.bin_of(float(size))
        assert abs(dist.log_density[number] - math.log(share)) < 4 * dist.error[number] + 1e-3
    assert set(dist.texts(dist.bin_of(13.0))) == {"Ada likes tea", "Bob likes tea"}
    assert set(seen) <= {f"{who} {what}" for who in ("Ada", "Bob") for what in
                         ("is here", "likes tea", "likes rain", "likes logic")}  # fmt: skip


def test_an_edge_is_needed_and_a_bin_is_a_number():
    dist = assay.sample_outputs(
        lambda inputs: inputs.double().sum(dim=1), assay.InputSpace((6,), 2), bins=np.arange(8) - 0.5,
        budget=3_000,
    )  # fmt: skip
    assert dist.probability(below=6.5).value == pytest.approx(1.0, abs=1e-6)
    assert dist.probability(above=2.5).value == pytest.approx(1 - 22 / 64, abs=0.1)
    for wrong in ({}, {"above": 1.5, "below": 2.5}, {"above": 2.0}):
        with pytest.raises(InputError, match="edge"):
            dist.probability(**wrong)
    with pytest.raises(InputError, match="lies in bin 3"):
        dist.samples(2.6)
    with pytest.raises(InputError, match="an output from"):
        dist.bin_of(70.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"base": torch.ones(3, 2)}, r"weights of shape \(4, 2\)"),
        ({"base": "words"}, "expected a base"),
        ({"base": torch.ones(4, 2), "sampler": "multicanonical"}, "its own moves"),
        ({"base": -torch.ones(4, 2)}, "weights of at least zero"),
    ],
)
def test_a_base_that_does_not_fit_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        assay.sample_outputs(lambda x: x.sum(dim=1), assay.InputSpace((4,), 2), bins=4, **options)


def test_templates_without_fillers_are_refused():
    with pytest.raises(InputError, match="fillers"):
        assay.Templates(["a {colour} cat"], {})
    with pytest.raises(InputError, match="temperature"):
        assay.TextsOf(assay.CausalLM(lambda t: torch.zeros(*t.shape, 3), 3, 3), 0.0)


def test_an_ngram_has_the_shares_counted_by_hand():
    """Order three, each order backed by the one below, against counts in plain Python."""
    texts = [[0, 1, 2, 0, 1, 3], [1, 2, 2], [3]]
    ngram = assay.NGram(texts, values=5, order=3, prior=0.5)

    def share(context, token):
        lower = 1 / 5 if not context else share(context[1:], token)
        if not context:
            seen = [other for text in texts for other in text]
        else:
            size = len(context)
            seen = [
                text[place + size]
                for text in texts
                for place in range(len(text) - size)
                if text[place : place + size] == context
            ]
            if not seen:
                return lower
        return (seen.count(token) + 0.5 * lower) / (len(seen) + 0.5)

    tokens = torch.tensor([[0, 1, 4, 2], [1, 2, 2, 0]])
    found = ngram(tokens).exp()
    for row in range(2):
        for place in range(4):
            context = tokens[row, max(0, place - 1) : place + 1].tolist()
            exact = torch.tensor([share(context, token) for token in range(5)])
            assert torch.allclose(found[row, place], exact, atol=1e-6)
    assert torch.allclose(
        ngram.start.exp(), torch.tensor([share([], token) for token in range(5)]), atol=1e-6
    )
    lm = assay.CausalLM(ngram, 5, 6, start=ngram.start)
    drawn = assay.TextsOf(lm).draw(2_000, torch.Generator().manual_seed(0))
    after = drawn[:, 1:][drawn[:, :-1] == 3]
    assert len(after) > 500
    for wrong in ({"values": 3}, {"values": 5, "order": 0}, {"values": 5, "prior": 0.0}):
        with pytest.raises(InputError, match="expected"):
            assay.NGram(texts, **wrong)
