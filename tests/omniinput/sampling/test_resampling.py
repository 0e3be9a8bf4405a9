"""Sequences resampled on the way still count all inputs, and carry their caches with them."""

import numpy as np
import pytest
import torch
from exact import log_density_of

import assay
from assay.omniinput.sampling.kernels.suffix import LanguageProblem
from assay.omniinput.sampling.lookahead import Lookahead
from assay.omniinput.sampling.plan import Budget, Plan
from assay.omniinput.sampling.samplers import importance
from assay.omniinput.sampling.samplers.importance import Importance

VALUES, LENGTH = 4, 6
PAIRS = 2.5 * torch.randn(VALUES, VALUES, VALUES, generator=torch.Generator().manual_seed(2))


def logits(tokens):
    """What follows depends on the last two tokens and on the first, more than looking one ahead can know."""
    before = torch.nn.functional.pad(tokens, (1, 0))[:, :-1]
    return PAIRS[before, tokens] * (1 + tokens[:, :1, None])


LM = assay.CausalLM(logits, VALUES, LENGTH)
INPUTS = torch.cartesian_prod(*[torch.arange(VALUES)] * LENGTH)
OUTPUTS = LM.negative_log_likelihood(INPUTS).numpy()
EDGES = np.quantile(OUTPUTS, np.linspace(0, 1, 9)) + np.array([-1e-3, *[0] * 7, 1e-3])


def sampled(budget, seed, monkeypatch, often):
    """Without any look ahead; resampled always or never."""
    monkeypatch.setattr(importance, "MOST_RESAMPLINGS", often)
    monkeypatch.setattr(importance, "LEAST_GROUP", 8)
    problem = LanguageProblem(LM.negative_log_likelihood, LM.space, lm=LM)
    run = Importance(problem, Plan(EDGES), Budget(budget, None), torch.Generator().manual_seed(seed))
    run.begin()
    while not run.finished:
        run.lookahead, run._log_psi = Lookahead.none(len(run.proposals), LENGTH - 1, VALUES), None
        run.advance()
    return run


def test_resampled_sequences_give_the_exact_density(monkeypatch):
    truth = log_density_of(OUTPUTS, EDGES)
    scaled, sums = [], []
    for seed in range(3):
        run = sampled(20_000, seed, monkeypatch, often=-1.0)
        assert run.resampling
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


def test_weights_become_equal_and_keep_their_sum(monkeypatch):
    run = sampled(2_000, 0, monkeypatch, often=1e9)
    run.proposals, run.piloting = np.array([0.5, 1.0]), False
    met = torch.tensor([0.0, 5.0, -3.0, 1.0] * 4 + [2.0] * 16, dtype=torch.float64)
    before = met.reshape(2, 16).logsumexp(dim=1)
    origin = run._resample(met)
    assert torch.allclose(met.reshape(2, 16).logsumexp(dim=1), before)
    assert met[:16].unique().numel() == 1
    assert torch.equal(origin[16:], torch.arange(16, 32))
    copies = torch.bincount(origin[:16], minlength=16)[1::4].sum()
    # Systematic resampling gives each sequence its expected number of copies, give or take one.
    share = float(torch.softmax(torch.tensor([0.0, 5.0, -3.0, 1.0]), dim=0)[1])
    assert abs(int(copies) - 16 * share) <= 4
    assert run._resample(met) is None


def test_resampling_is_left_off_where_weights_hardly_vary(monkeypatch):
    steps = torch.log_softmax(torch.randn(5, 5, generator=torch.Generator().manual_seed(0)) / 3, dim=1)
    lm = assay.CausalLM(lambda tokens: steps[tokens], 5, 6)
    problem = LanguageProblem(lm.negative_log_likelihood, lm.space, lm=lm)
    run = Importance(problem, Plan(np.linspace(6, 12, 7)), Budget(40_000, None), torch.Generator())
    run.begin()
    while run.piloting:
        run.advance()
    assert run.resampled[0] > 0
    assert not run.resampling


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
            return logits(so_far)[:, -tokens.shape[1] :], {"tokens": so_far}

        lm = assay.CausalLM(logits, VALUES, LENGTH, cached=cached)
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
