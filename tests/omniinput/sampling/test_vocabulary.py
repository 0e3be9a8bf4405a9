"""Sums and draws over a vocabulary equal the plain ones, whatever its size, precision and temperatures."""

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import assay
from assay.omniinput.sampling.samplers.last_token import LastToken
from assay.omniinput.sampling.samplers.proposal_betas import on_grid
from assay.omniinput.sampling.samplers.sequences import Sequences
from assay.omniinput.sampling.vocabulary import NextTokens, Tilt, common_unit

GRID = [-2.0, -0.5, 0.0, 0.25, 0.3125, 0.5, 1.0, 1.5, 4.0]
ANY = [-0.7321, 0.0, 0.123456, 0.5, 0.9, 1.1234, 2.7]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def logits_of(rows, values, seed=0):
    return 3 * torch.randn(rows, values, generator=generator(seed))


def plain(logits, betas, tilt=None):
    log_probs = torch.log_softmax(logits.double(), dim=1)
    scaled = log_probs[:, None] * betas[:, None]
    return torch.logsumexp(scaled if tilt is None else scaled + tilt.log_psi.double(), dim=2)


@pytest.mark.parametrize("betas", [GRID, ANY])
@pytest.mark.parametrize("values", [5, 3000])  # all at once, and in blocks by products of powers
@pytest.mark.parametrize("tilted", [False, True])
def test_normalisers_are_those_of_the_plain_sum(values, betas, tilted):
    betas = torch.tensor(betas, dtype=torch.float64)
    logits = logits_of(40, values)
    tilt = Tilt(logits_of(len(betas), values, 1) / 3) if tilted else None
    own = torch.arange(40) % len(betas)
    tokens = NextTokens.after(logits)
    exact = plain(logits, betas, tilt)
    # Single precision of sums of exponents up to 4 x 25: 1e-7 x 100.
    assert torch.allclose(tokens.log_normalisers(betas, tilt), exact, atol=2e-5)
    weighed = tokens.weighed(betas, own, tilt)
    assert torch.allclose(weighed.log_normalisers, exact[torch.arange(40), own], atol=2e-5)
    assert torch.allclose(weighed.cells.sum(dim=1), torch.ones(40), atol=1e-5)


@pytest.mark.parametrize("values", [5, 1000])
def test_tokens_are_drawn_from_the_tempered_and_tilted_distribution(values):
    """40,000 rows that share their logits; the mean over the vocabulary of (share - p)^2 / (p / n) is one."""
    betas = torch.tensor([-0.5, 0.75], dtype=torch.float64)
    tilt = Tilt(logits_of(2, values, 1) / 3)
    tilt.log_psi[:, ::2] -= 1000.0  # half of the tokens can never come
    rows = 40_000
    tokens = NextTokens.after(logits_of(1, values) / 2, torch.zeros(rows, dtype=torch.int64))
    own = torch.arange(2).repeat_interleave(rows // 2)
    drawn = tokens.weighed(betas, own, tilt).drawn(generator())
    exact = torch.softmax(torch.log_softmax(tokens.logits.double(), 1) * betas[:, None] + tilt.log_psi, dim=1)
    for beta in (0, 1):
        counted = torch.bincount(drawn[own == beta], minlength=values)
        assert not counted[::2].any()
        expected = exact[beta, 1::2] * rows / 2
        chi_square = ((counted[1::2] - expected) ** 2 / expected).sum() / (len(expected) - 1)
        # Its standard deviation is sqrt(2 / 499) = 0.06, and 1.4 for the two tokens of the small one.
        assert chi_square < (1.3 if values == 1000 else 8.0)


def test_half_precision_and_shared_rows_give_the_same_numbers():
    betas, logits = torch.tensor(GRID, dtype=torch.float64), logits_of(3, 6000).bfloat16()
    rows = torch.tensor([2, 0, 0, 2, 1])
    shared, apart = NextTokens.after(logits, rows), NextTokens.after(logits[rows].float())
    assert torch.equal(shared.log_normalisers(betas), apart.log_normalisers(betas))
    chosen = torch.tensor([4, 1999, 7, 0, 3])
    assert torch.equal(shared.of(chosen), apart.of(chosen))
    exact = torch.log_softmax(logits[rows].double(), 1)[torch.arange(5), chosen]
    assert torch.allclose(shared.of(chosen), exact, atol=1e-5)
    own, tilt = torch.arange(5), Tilt(logits_of(len(betas), 6000, 1) / 3)
    assert torch.equal(*(one.weighed(betas, own, tilt).drawn(generator()) for one in (shared, apart)))


class Watched(TorchDispatchMode):
    """Notes the largest tensor in double precision."""

    most = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        if isinstance(found, torch.Tensor) and found.dtype is torch.float64:
            Watched.most = max(Watched.most, found.numel())
        return found


def test_nothing_of_the_size_of_the_vocabulary_is_in_double_precision():
    betas = torch.tensor(GRID, dtype=torch.float64)
    own = torch.arange(45) % len(betas)
    logits = logits_of(45, 6000)
    with Watched():
        tokens = NextTokens.after(logits)
        weighed = tokens.weighed(betas, own, Tilt(torch.zeros(len(betas), 6000)))
        token = weighed.drawn(generator())
        weighed.ahead(token), tokens.of(token)
        draw = Sequences(token[:, None], np.full(45, 30.0), np.zeros(45), tokens, own)
        LastToken(draw, np.arange(30.0, 60.0)).counts()
    assert Watched.most <= 45 * 256  # one cell of the vocabulary per row


def test_betas_on_a_grid_have_a_common_unit():
    rounded = on_grid(np.array([0.1, 0.2, 0.33, 0.61, 1.7]))
    assert common_unit(rounded) > 0
    assert np.abs(rounded - [0.1, 0.2, 0.33, 0.61, 1.7]).max() <= 0.1 / 8
    assert common_unit(np.array(ANY)) == 0.0


@pytest.mark.parametrize("edges", [np.linspace(28.0, 50.0, 12), np.array([28.0, 30.0, 31.0, 40.0, 60.0])])
def test_last_tokens_are_counted_as_by_a_histogram(edges):
    """Of 30 prefixes, three of which have ended and continue with token 2 alone, at no cost."""
    logits = logits_of(30, 400)
    before = np.linspace(25.0, 35.0, 30) + 1e-3
    ended = torch.arange(30) % 10 == 4
    tokens = NextTokens.after(logits, ended=ended, end=2)
    last = LastToken(
        Sequences(torch.zeros(30, 3, dtype=torch.int64), before, np.zeros(30), tokens, torch.zeros(30)),
        edges,
    )
    outputs = before[:, None] - torch.log_softmax(logits.double(), 1).numpy()
    exact = np.stack([np.histogram(row, edges)[0] for row in outputs])
    exact[ended] = np.stack([np.histogram([one], edges)[0] for one in before[ended]])
    counts = last.counts()
    assert np.array_equal(counts, exact)
    rows, bins = np.nonzero(counts > 1)
    twice = np.repeat(rows, 2), np.repeat(bins, 2)
    chosen = last.chosen(*twice, np.random.default_rng(0))
    found = np.searchsorted(edges, outputs[twice[0], chosen.numpy()], side="right") - 1
    assert np.array_equal(found, twice[1])
    assert (chosen[0::2] != chosen[1::2]).all()
    assert (last.chosen(*np.nonzero(counts * ended.numpy()[:, None]), np.random.default_rng(0)) == 2).all()


def test_a_logit_that_is_not_finite_stops_sampling_with_what_was_found():
    calls = []

    def logits(tokens):
        calls.append(1)
        found = torch.zeros(*tokens.shape, 6)
        found[..., 0] = 2.0 * (tokens == 1)
        if len(calls) > 120:
            found[0, 0, 3] = float("nan")
        return found

    lm = assay.CausalLM(logits, values=6, length=5, cached=lambda tokens, cache: (logits(tokens), tokens))
    with pytest.raises(assay.omniinput.SamplingError, match="finite next-token logits") as caught:
        assay.sample_outputs(lm, bins=np.linspace(4, 10, 7), budget=20_000, seed=0)
    assert caught.value.partial is not None
    assert caught.value.partial.visited.any()
