"""Sequences selected on the way still count all inputs, and carry their caches with them."""

import numpy as np
import pytest
import torch
from exact import all_inputs, log_density_of, long_memory_logits

import assay
from assay.omniinput.sampling.kernels.suffix import LanguageProblem
from assay.omniinput.sampling.lookahead import Lookahead
from assay.omniinput.sampling.plan import Budget, Plan
from assay.omniinput.sampling.samplers import importance
from assay.omniinput.sampling.samplers.importance import Importance
from assay.omniinput.sampling.samplers.selection import selected
from assay.omniinput.sampling.vocabulary import NextTokens

VALUES, LENGTH = 4, 6
LM = assay.CausalLM(long_memory_logits, VALUES, LENGTH)
INPUTS = all_inputs(LENGTH, VALUES)
OUTPUTS = LM.negative_log_likelihood(INPUTS).numpy()
EDGES = np.quantile(OUTPUTS, np.linspace(0, 1, 9)) + np.array([-1e-3, *[0] * 7, 1e-3])


def sampled(budget, seed, monkeypatch, enough):
    """Without any look ahead; selected whenever fewer than `enough` particles would be effective."""
    monkeypatch.setattr(importance, "ENOUGH_PARTICLES", enough)
    monkeypatch.setattr(importance, "LEAST_GROUP", 8)
    problem = LanguageProblem(LM.negative_log_likelihood, LM.space, lm=LM)
    run = Importance(problem, Plan(EDGES), Budget(budget, None), torch.Generator().manual_seed(seed))
    run.begin()
    while not run.finished:
        run.lookahead, run._log_psi = Lookahead.none(run.betas, LENGTH - 1, VALUES), None
        run.advance()
    return run


def test_selected_sequences_give_the_exact_density(monkeypatch):
    truth = log_density_of(OUTPUTS, EDGES)
    scaled, sums = [], []
    for seed in range(3):
        run = sampled(20_000, seed, monkeypatch, enough=2.0)
        assert run.selecting
        found, blocks = run.estimate(), run.blocks.whole()
        scaled.append((found.log_density - truth) / found.error)
        sums += [np.exp(blocks[name] - blocks["rows"]) for name in ("inputs", "likelihood")]
        assert np.abs(found.log_density - truth).max() < 0.2
        # What is called effective says how far the estimates are off.
        assert (run.effective() > 100).all()
    assert 0.5 < np.sqrt(np.mean(np.square(scaled))) < 1.5
    # Both known sums are unbiased; how far off they may be follows from how far blocks differ. That of the
    # likelihoods is the rougher one: no beta of these bins is near 1. Its error was 0.064 over 16 runs.
    for one, known in zip((sums[0::2], sums[1::2]), (1.0, VALUES / len(INPUTS)), strict=True):
        every = np.concatenate(one) / known
        error = every.std(ddof=1) / np.sqrt(len(every))
        assert error < 0.06
        assert abs(every.mean() - 1) < 4 * error


def weighed_rows(own, betas, end=None, seed=3):
    """Next tokens of rows at their betas, of which those with the token `end` have ended."""
    logits = 3 * torch.randn(len(own), 37, generator=torch.Generator().manual_seed(seed))
    ended = None if end is None else torch.arange(len(own)) % 3 == 0
    following = NextTokens.after(logits, ended=ended, end=-1 if end is None else end)
    weights = following.weighed(betas, own)
    probabilities = torch.softmax(logits.double() * betas[own][:, None], dim=1)
    if ended is not None:
        probabilities[ended] = torch.nn.functional.one_hot(torch.tensor(end), 37).double()
    return weights, probabilities


@pytest.mark.parametrize("end", [None, 5])
def test_every_continuation_counts_what_it_weighs_on_average(end):
    """Against all rows x tokens written out: unbiased, none twice, heavy ones always and at their weight."""
    own, betas = torch.tensor([0] * 6 + [1] * 4), torch.tensor([0.4, 2.0], dtype=torch.float64)
    weighed, probabilities = weighed_rows(own, betas, end)
    log_weight = torch.randn(10, generator=torch.Generator().manual_seed(4)).double() * 2
    truth = log_weight.exp()[:, None] * probabilities
    sums, generator = torch.zeros_like(truth), torch.Generator().manual_seed(0)
    trials = 1500
    for _ in range(trials):
        found = selected(weighed, log_weight, own.numpy(), generator)
        assert (own[found.origin] == own).all()
        alive = found.log_weight > -torch.inf
        pairs = found.origin[alive] * 37 + found.tokens[alive]
        assert len(pairs.unique()) == len(pairs)
        sums.view(-1).index_add_(0, pairs, found.log_weight[alive].exp())
    for group, size in ((0, 6), (1, 4)):
        mine = truth[own == group].flatten()
        least = optimal_level(mine.numpy(), size)
        met = sums[own == group].flatten() / trials
        heavy = mine > least * (1 + 1e-5)
        assert torch.allclose(met[heavy], mine[heavy], rtol=1e-5)
        # A light one is met with probability p = weight / c and counts c; the rarest are met once or never.
        light = mine[~heavy]
        error = least * torch.sqrt(light / least * (1 - light / least).clamp(min=0) / trials)
        assert ((met[~heavy] - light).abs() <= 5 * error + 3 * least / trials).all()


def test_rows_of_equal_weight_go_on_independently():
    """The mean of a function of the tokens of 64 rows with the same next ones varies as that of 64 draws."""
    rows, values = 64, 400
    logits = torch.randn(1, values, generator=torch.Generator().manual_seed(5))
    function = torch.randn(values, generator=torch.Generator().manual_seed(6)).double()
    weighed = NextTokens.after(logits.expand(rows, -1).contiguous()).weighed(
        torch.ones(1, dtype=torch.float64), torch.zeros(rows, dtype=torch.int64)
    )
    generator, group = torch.Generator().manual_seed(0), np.zeros(rows, dtype=np.int64)
    means = torch.stack([
        function[selected(weighed, torch.zeros(rows).double(), group, generator).tokens].mean()
        for _ in range(400)
    ])  # fmt: skip
    weights = torch.softmax(logits[0].double(), dim=0)
    expected = float(weights @ function)
    variance = float(weights @ (function - expected) ** 2) / rows
    # Starts at the borders of cells and tokens leave some dependence, 1.4 times; one quantile for all rows
    # gave 64. The variance of 400 normal values has an error of 7 %.
    assert float(((means - expected) ** 2).mean()) < 1.7 * variance


def optimal_level(weights, size):
    """c of Fearnhead and Clifford: the sum of min(1, w / c) is `size`; by bisection."""
    low, high = 0.0, weights.sum()
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.minimum(1, weights / middle).sum() > size else (low, middle)
    return high


def test_where_all_continuations_have_a_place_they_are_enumerated():
    own, betas = torch.zeros(64, dtype=torch.int64), torch.tensor([1.0], dtype=torch.float64)
    weighed, probabilities = weighed_rows(own, betas)
    log_weight = torch.full((64,), -torch.inf, dtype=torch.float64)
    log_weight[0] = 0.0
    found = selected(weighed, log_weight, own.numpy(), torch.Generator())
    alive = found.log_weight > -torch.inf
    assert sorted(found.tokens[alive].tolist()) == list(range(37))
    assert torch.allclose(found.log_weight[alive].exp(), probabilities[0, found.tokens[alive]], rtol=1e-5)


def test_selection_is_left_off_where_weights_hardly_vary(monkeypatch):
    steps = torch.log_softmax(torch.randn(5, 5, generator=torch.Generator().manual_seed(0)) / 3, dim=1)
    lm = assay.CausalLM(lambda tokens: steps[tokens], 5, 6)
    problem = LanguageProblem(lm.negative_log_likelihood, lm.space, lm=lm)
    run = Importance(problem, Plan(np.linspace(6, 12, 7)), Budget(40_000, None), torch.Generator())
    run.begin()
    while run.piloting:
        run.advance()
    assert min(run.pilot.particles) > importance.ENOUGH_PARTICLES
    assert not run.selecting


@pytest.mark.parametrize("kind", ["whole forwards", "huggingface", "somebody's"])
def test_caches_follow_their_rows(kind):
    if kind == "huggingface":
        from transformers import GPT2Config, GPT2LMHeadModel

        torch.manual_seed(0)
        config = GPT2Config(vocab_size=VALUES, n_positions=8, n_embd=8, n_layer=2, n_head=2, bos_token_id=0)
        lm = assay.CausalLM.from_huggingface(GPT2LMHeadModel(config), LENGTH, start=0)
    elif kind == "somebody's":

        def cached(tokens, cache):
            so_far = tokens if cache is None else torch.cat([cache["tokens"], tokens], dim=1)
            return long_memory_logits(so_far)[:, -tokens.shape[1] :], {"tokens": so_far}

        lm = assay.CausalLM(long_memory_logits, VALUES, LENGTH, cached=cached)
    else:
        lm = LM
    tokens = torch.randint(VALUES, (5, 3), generator=torch.Generator().manual_seed(1))
    rows = torch.tensor([4, 4, 0, 2, 2])
    _, cache = lm.begin(5)
    _, cache = lm.feed(tokens, cache)
    moved = lm.picked(cache, rows, tokens[rows])
    after, _ = lm.feed(torch.ones(5, 1, dtype=torch.int64), moved)
    whole = torch.cat([tokens[rows], torch.ones(5, 1, dtype=torch.int64)], dim=1)
    fresh, _ = lm.feed(whole, lm.begin(5)[1])
    everything = slice(0, 5)
    assert torch.allclose(after.log_probs(everything), fresh.log_probs(everything), atol=1e-5)
