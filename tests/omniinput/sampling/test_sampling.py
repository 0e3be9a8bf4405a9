"""Sampled distributions hold the exact ones within their own errors."""

import dataclasses
import math
import re

import numpy as np
import pytest
import torch
from exact import (
    TinyTransformer,
    bits_log_density,
    ising_log_density,
    ising_ring,
    log_density_of,
    markov_log_density,
    markov_table,
    within,
    worst,
)

import assay
from assay.omniinput.sampling.distribution import OutputDistribution
from assay.omniinput.sampling.plan import Budget
from assay.omniinput.sampling.samplers import importance_then_tempering as hybrid
from assay.omniinput.sampling.samplers.importance import Importance

BITS = 10
BIT_EDGES = np.arange(BITS + 2) - 0.5


def bits(inputs):
    return inputs.float().sum(dim=1)


@pytest.mark.parametrize(
    "kernel",
    ["auto", "single-site", "block", "shift", "crossover", "learned", "informed", "langevin", "tilted"],
)
def test_sum_of_bits_is_binomial_for_every_kernel(kernel):
    # Crossover alone makes no new values.
    moves = ["crossover", "single-site"] if kernel == "crossover" else kernel
    space = assay.InputSpace(shape=(BITS,), values=2)
    dist = assay.sample_outputs(bits, space, bins=BIT_EDGES, budget=20_000, seed=1, kernel=moves)
    exact = bits_log_density(BITS)
    assert dist.visited.all()
    # Neighbouring bins err together, so one run in ten has half of its bins beyond two errors; the
    # stated rate is checked over many runs below.
    assert within(dist, exact, 4) == 1.0
    assert worst(dist, exact) < 0.6


def test_error_bars_cover_at_the_stated_rate():
    """Over 12 seeds and 11 bins, the share within two errors is that of a normal, 95 %, give or take."""
    exact, space = bits_log_density(BITS), assay.InputSpace(shape=(BITS,), values=2)
    scaled = []
    for seed in range(12):
        dist = assay.sample_outputs(bits, space, bins=BIT_EDGES, budget=12_000, seed=seed)
        scaled.append((dist.log_density - exact) / dist.error)
    # Bins of a run are correlated: the mean of 12 runs is known to about 0.04.
    assert np.mean(np.abs(scaled) <= 2) >= 0.87
    assert 0.7 <= np.sqrt(np.mean(np.square(scaled))) <= 1.3


def test_an_ising_ring_is_exact_on_both_sides_of_zero_temperature():
    energies, exact = ising_log_density(12)
    edges = np.append(energies - 2, energies[-1] + 2)
    dist = assay.sample_outputs(ising_ring, assay.InputSpace((12,), 2), bins=edges, budget=40_000, seed=0)
    assert dist.visited.all()
    assert within(dist, exact, 3) >= 0.8
    assert worst(dist, exact) < 0.5
    assert dist.diagnostics["betas"][0] < 0 < dist.diagnostics["betas"][-1]
    assert 0.0 in dist.diagnostics["betas"]


def test_a_squashed_output_has_the_distribution_of_the_output_itself():
    """A steep output of the number of ones: outputs jump along the ladder, but their counts are binomial."""
    sites = 24
    ones = np.arange(sites + 1)
    edges = np.concatenate([[-0.01], ((ones[1:] ** 3 + ones[:-1] ** 3) / 2), [sites**3 + 1.0]])
    space = assay.InputSpace((sites,), 2)

    def steep(inputs):
        return inputs.double().sum(dim=1) ** 3

    dist = assay.sample_outputs(
        steep, space, bins=edges, squash=(1800.0, 4000.0), budget=60_000, seed=0, kernel="single-site"
    )
    exact = bits_log_density(sites)
    assert np.isfinite(dist.log_density).all()
    assert np.mean(np.abs(dist.log_density - exact) <= 3 * dist.error) > 0.9
    np.testing.assert_array_equal(dist.edges, edges)
    rows = dist.samples(20)
    assert (rows.sum(dim=1) == 20).all()
    kept = dist.kept
    assert np.allclose(kept.outputs, steep(kept.inputs).numpy(), rtol=1e-6)


def test_the_flat_sampler_agrees_with_the_exact_answer():
    space = assay.InputSpace(shape=(BITS,), values=2)
    dist = assay.sample_outputs(
        bits, space, bins=BIT_EDGES, budget=30_000, seed=0, sampler="multicanonical", kernel="single-site"
    )
    exact = bits_log_density(BITS)
    assert dist.diagnostics["sampler"] == "multicanonical"
    assert dist.visited.all()
    assert within(dist, exact, 3) >= 0.8
    assert worst(dist, exact) < 0.5


@pytest.fixture(scope="module")
def markov():
    """12 tokens, length 10; its distribution spans over twenty nats below the bulk."""
    table = markov_table(12, seed=0)
    edges = np.arange(10.0, 44.0, 2.0)
    return table, edges, markov_log_density(table, 10, edges)


def language_model(table, length, cached=True):
    steps = torch.from_numpy(table).float()
    cache = (lambda tokens, cache: (steps[tokens], tokens)) if cached else None
    return assay.CausalLM(lambda tokens: steps[tokens], table.shape[1], length, start=steps[-1], cached=cache)


@pytest.mark.parametrize(
    ("sampler", "budget"), [("auto", 12_000), ("importance", 12_000), ("tempering", 20_000)]
)
def test_a_markov_language_model_has_its_exact_distribution(markov, sampler, budget):
    table, edges, exact = markov
    lm = language_model(table, 10)
    dist = assay.sample_outputs(lm, bins=edges, budget=budget, seed=0, sampler=sampler)
    known = np.isfinite(exact) & (exact > math.log(1e4) - 10 * math.log(12))
    assert dist.visited[known].all()
    assert np.abs(dist.log_density - exact)[known].max() < 0.35
    # Neighbouring bins err together, so that a single run says little about its errors: of 16 seeds, 91 to
    # 98 % of all bins were within two errors, but 73 % in the worst run. The stated rate is checked below.
    assert np.mean((np.abs(dist.log_density - exact) <= 2 * dist.error)[known]) >= 0.6
    assert np.mean((np.abs(dist.log_density - exact) <= 4 * dist.error)[known]) == 1.0
    assert dist.diagnostics["evaluations"] <= budget


def test_errors_of_a_language_model_cover_at_the_stated_rate():
    """Over 12 seeds, 95 % of bins within two errors, and a root mean square of one; give or take.

    Errors are never below what the weights say, so they are a little too large: 0.87 over 40 seeds.
    """
    table, edges = markov_table(6, seed=1), np.arange(5.0, 23.0, 2.0)
    exact = markov_log_density(table, 6, edges)
    known = np.isfinite(exact) & (exact > math.log(50) - 6 * math.log(6))
    lm, scaled = language_model(table, 6), []
    for seed in range(12):
        dist = assay.sample_outputs(lm, bins=edges, budget=1_000, seed=seed, sampler="importance")
        scaled.append(((dist.log_density - exact) / dist.error)[known])
    # About three independent bins a run: 36 in all, so that 95 % has an error of 4 %, the root one of 0.12.
    assert np.mean(np.abs(scaled) <= 2) >= 0.87
    assert 0.7 < np.sqrt(np.mean(np.square(scaled))) < 1.2


def test_low_bins_of_a_language_model_are_left_to_tempering_from_its_own_samples(markov, monkeypatch):
    """If importance sampling says that three low bins are poorly known, whatever it really knows of them."""
    monkeypatch.setattr(hybrid, "EVALUATIONS_PER_EFFECTIVE", 10)
    table, edges, _ = markov
    low = np.where(np.arange(len(edges) - 1) < 3, 1.0, 10_000.0)
    monkeypatch.setattr(Importance, "effective", lambda _: low)
    lm = language_model(table, 10)
    dist = assay.sample_outputs(lm, bins=edges, budget=10_000, seed=3)
    assert dist.diagnostics["sampler"] == "importance, then tempering"
    assert dist.diagnostics["betas"][0] == 1.0
    share = dist.diagnostics["importance_share"]
    assert share[0] < 0.5 < share[-1]


def test_a_tiny_transformer_equals_its_enumeration():
    model = TinyTransformer()
    lm = assay.CausalLM(model, values=10, length=6)
    # All 10^5 prefixes of five digits; the sixth digit takes all its values at once.
    with torch.no_grad():
        log_probs = torch.log_softmax(model(all_digits(5)), dim=2).double()
    scored = log_probs[:, :-1].gather(2, all_digits(5)[:, 1:, None]).sum(dim=(1, 2))
    outputs = -(scored[:, None] + log_probs[:, -1]).flatten().numpy()
    assert lm.negative_log_likelihood(torch.tensor([[1, 2, 3, 4, 5, 6]])).item() == pytest.approx(
        outputs[123456]
    )
    # The first token is free, so likelihoods add up to the number of its values.
    assert np.exp(-outputs).sum() == pytest.approx(10.0, rel=1e-4)
    edges = np.linspace(np.quantile(outputs, 1e-5), outputs.max(), 15)
    exact = log_density_of(outputs, edges)
    dist = assay.sample_outputs(lm, bins=edges, budget=12_000, seed=0)
    assert within(dist, exact, 2) >= 0.8
    assert within(dist, exact, 4) == 1.0
    # Bins with at least 100 of the 10^6 inputs; 0.3 nats is three of the errors stated there.
    assert np.nanmax(np.abs(dist.log_density - exact)[exact > np.log(1e-4)]) < 0.3


def all_digits(length):
    numbers = torch.arange(10**length)
    return torch.stack([numbers // 10**place % 10 for place in range(length - 1, -1, -1)], dim=1)


def test_a_model_without_cache_gives_the_same_numbers(markov):
    table, edges, _ = markov
    with_cache, without = (
        assay.sample_outputs(
            language_model(table, 10, cached), bins=edges, budget=2_000, seed=5, sampler="importance"
        )
        for cached in (True, False)
    )
    assert np.array_equal(with_cache.log_density, without.log_density, equal_nan=True)


def test_samples_lie_in_their_bins_and_weigh_what_they_stand_for(markov):
    table, edges, _ = markov
    lm = language_model(table, 10)
    dist = assay.sample_outputs(lm, bins=edges, budget=8_000, seed=0)
    for index in np.flatnonzero(dist.visited):
        inputs = dist.samples(int(index))
        assert inputs.shape[1:] == (10,)
        outputs = lm.negative_log_likelihood(inputs).numpy()
        assert np.allclose(outputs, dist.outputs(int(index)), atol=1e-4)
        assert ((outputs > edges[index] - 1e-4) & (outputs < edges[index + 1] + 1e-4)).all()
        assert dist.weights(int(index)).sum() == pytest.approx(1.0)


def test_weighted_samples_of_a_wide_bin_are_uniform_over_its_inputs():
    """Two wide bins over 10 bits: the weighted mean output inside each is the exact one."""
    outputs = np.arange(11)
    ways = np.exp(bits_log_density(10))
    space = assay.InputSpace((10,), 2)
    dist = assay.sample_outputs(bits, space, bins=[-0.5, 4.5, 10.5], budget=20_000, seed=0, keep=4000)
    for index, inside in ((0, outputs <= 4), (1, outputs > 4)):
        exact = (outputs * ways)[inside].sum() / ways[inside].sum()
        assert dist.weights(index) @ dist.outputs(index) == pytest.approx(exact, abs=0.12)


def test_fixed_positions_stay_fixed_while_sampling():
    template = torch.tensor([9, 0, 0, 0, 0, 8])
    free = torch.tensor([0, 1, 1, 1, 1, 0])
    space = assay.InputSpace((6,), 10, template=template, free=free)
    seen = []

    def total(inputs):
        seen.append(inputs)
        return inputs.double().sum(dim=1)

    dist = assay.sample_outputs(total, space, bins=np.arange(17, 55) - 0.5, budget=10_000, seed=0)
    everything = torch.cat(seen)
    assert (everything[:, 0] == 9).all()
    assert (everything[:, 5] == 8).all()
    assert len(everything) == dist.diagnostics["evaluations"] <= 10_000
    exact = log_density_of(all_digits(4).sum(dim=1).numpy() + 17.0, dist.edges)
    assert within(dist, exact, 4) >= 0.9


def test_the_number_of_bins_is_enough():
    dist = assay.sample_outputs(bits, assay.InputSpace((BITS,), 2), bins=10, budget=20_000, seed=0)
    assert len(dist.log_density) == 10
    assert np.nansum(np.exp(dist.log_density)) == pytest.approx(1.0, abs=0.02)


def test_the_same_seed_gives_the_same_distribution():
    space = assay.InputSpace((8,), 3)
    first, second = (
        assay.sample_outputs(bits, space, bins=np.arange(18) - 0.5, budget=5_000, seed=4) for _ in "ab"
    )
    assert np.array_equal(first.log_density, second.log_density, equal_nan=True)
    assert torch.equal(first.kept.inputs, second.kept.inputs)


def test_a_budget_in_seconds_ends_in_time(monkeypatch):
    """By a clock on which an evaluation takes 0.1 ms and nothing else takes any time."""
    clock = [0.0]

    def timed(inputs):
        clock[0] += 1e-4 * len(inputs)
        return bits(inputs)

    monkeypatch.setattr(Budget, "elapsed", property(lambda self: clock[0]))
    dist = assay.sample_outputs(timed, assay.InputSpace((8,), 2), bins=np.arange(10) - 0.5, seconds=1.5)
    assert 1.4 < dist.diagnostics["seconds"] < 1.6
    assert within(dist, bits_log_density(8), 5) == 1.0


def test_a_huggingface_model_is_sampled_with_its_cache():
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=7, n_positions=8, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0
        )
    ).eval()
    for parameter in model.parameters():
        parameter.data *= 3
    lm = assay.CausalLM.from_huggingface(model, length=5, start=0)
    numbers = torch.arange(7**5)
    inputs = torch.stack([numbers // 7**place % 7 for place in range(5)], dim=1)
    outputs = lm.negative_log_likelihood(inputs).numpy()
    assert np.exp(-outputs).sum() == pytest.approx(1.0, rel=1e-4)
    edges = np.linspace(np.quantile(outputs, 0.001), outputs.max(), 9)
    dist = assay.sample_outputs(
        lm, bins=edges, budget=2_000, seed=0, decode=lambda row: "-".join(map(str, row))
    )
    assert within(dist, log_density_of(outputs, edges), 3) >= 0.85
    assert dist.texts(4)[0].count("-") == 4


def test_results_are_results(tmp_path, markov):
    table, edges, _ = markov
    dist = assay.sample_outputs(language_model(table, 10), bins=edges, budget=4_000, seed=0)
    assay.save(dist, tmp_path / "dist.safetensors")
    back = assay.load(tmp_path / "dist.safetensors")
    assert isinstance(back, OutputDistribution)
    assert np.array_equal(back.log_density, dist.log_density, equal_nan=True)
    assert back.to_frame().equals(dist.to_frame())
    assert back.summary() == dist.summary()
    assert len(back.figures()) == 2
    assert len(back.plot().axes) == 1
    image = assay.sample_outputs(
        lambda inputs: inputs.double().sum(dim=(1, 2)), assay.InputSpace((3, 3), 2), bins=9, budget=4_000
    )
    assert len(image.figures()) == 2


def test_two_models_are_compared_by_the_inputs_they_share():
    """Paper appendix B in the small: sums of three digits, the second model adds one; by enumeration."""
    space = assay.InputSpace((3,), 10)
    first_fn, second_fn = (lambda x: x.double().sum(dim=1)), (lambda x: x.double().sum(dim=1) + 1)
    edges = np.arange(31) - 0.5
    first, second = (
        assay.sample_outputs(f, space, bins=edges, budget=15_000, seed=2) for f in (first_fn, second_fn)
    )
    one, two = assay.cross_model_normalised(first, second, first_fn, second_fn, 4.5, 9.5)
    totals = all_digits(3).sum(dim=1).numpy()
    shared = ((totals >= 5) & (totals <= 9) & (totals + 1 >= 5) & (totals + 1 <= 9)).sum()
    assert np.exp(one.log_density[7]) == pytest.approx((totals == 7).sum() / shared, rel=0.25)
    assert np.exp(two.log_density[7]) == pytest.approx((totals + 1 == 7).sum() / shared, rel=0.25)
    assert one.normalisation == "cross-model"
    assert one.reasons == first.reasons
    # A density that is off by a factor shows: the same inputs are counted from the other side as well.
    wrong = dataclasses.replace(second, log_density=second.log_density + 3.0)
    doubted = assay.cross_model_normalised(first, wrong, first_fn, second_fn, 4.5, 9.5)
    for dist in doubted:
        assert re.search("counted twice, [23][.0-9]* nats apart", str(dist.reasons[-1]))
        assert not dist.converged
