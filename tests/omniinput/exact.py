"""Models whose output distribution is known exactly: by formula, dynamic programming or enumeration."""

import itertools
import math

import numpy as np
import torch
from scipy.special import gammaln


def all_inputs(sites, values):
    return torch.tensor(list(itertools.product(range(values), repeat=sites)))


def bits_log_density(sites):
    """Sum of bits: binomial, ln C(n, k) - n ln 2."""
    k = np.arange(sites + 1)
    return gammaln(sites + 1) - gammaln(k + 1) - gammaln(sites - k + 1) - sites * math.log(2)


def ising_ring(inputs):
    """Energy of a ring of +-1 spins: minus the sum over neighbours of their product."""
    spins = 2 * inputs.double() - 1
    return -(spins * spins.roll(1, dims=1)).sum(dim=1)


def ising_log_density(sites):
    """Energies -n + 4j: a ring has an even number 2j of domain walls, placed in C(n, 2j) ways, twice over."""
    walls = np.arange(0, sites + 1, 2)
    ways = gammaln(sites + 1) - gammaln(walls + 1) - gammaln(sites - walls + 1) + math.log(2)
    return -sites + 2.0 * walls, ways - sites * math.log(2)


_BY_LAST_TWO = 2.5 * torch.randn(4, 4, 4, generator=torch.Generator().manual_seed(2))


def long_memory_logits(tokens):
    """What follows depends on the last two tokens and on the first, more than looking one ahead can know."""
    before = torch.nn.functional.pad(tokens, (1, 0))[:, :-1]
    return _BY_LAST_TWO[before, tokens] * (1 + tokens[:, :1, None])


def markov_table(values, seed, scale=1.5):
    """Log-probabilities (values + 1, values) of a Markov model; the last row is the first token's."""
    logits = scale * np.random.default_rng(seed).normal(size=(values + 1, values))
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def markov_log_density(table, length, edges, grid=0.01):
    """By dynamic programming over (last token, negative log-likelihood on a grid).

    Each of `length` terms is rounded to the grid, which moves a sequence by sqrt(length / 12) grid at most
    typically; at a slope of one nat per nat that is far below the tolerances used with it.
    """
    steps = np.round(-table / grid).astype(int)
    values = table.shape[1]
    size = int(steps[:-1].max() * (length - 1) + steps[-1].max()) + 1
    counts = np.zeros((values, size))
    counts[np.arange(values), steps[-1]] = 1.0
    for _ in range(length - 1):
        moved = np.zeros_like(counts)
        for old, new in itertools.product(range(values), repeat=2):
            step = steps[old, new]
            moved[new, step:] += counts[old, : size - step]
        counts = moved
    outputs, total = np.arange(size) * grid, counts.sum(axis=0)
    inside = np.histogram(outputs, edges, weights=total)[0]
    with np.errstate(divide="ignore"):
        return np.log(inside) - length * math.log(values)


class TinyTransformer(torch.nn.Module):
    """One layer, two heads, random weights: a causal language model small enough to enumerate."""

    def __init__(self, values=10, length=6, width=16, seed=0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)

        def weight(*shape):
            return torch.nn.Parameter(torch.randn(*shape, generator=generator) / math.sqrt(shape[0]))

        self.width = width
        self.tokens, self.places = weight(values, width), weight(length, width)
        self.query, self.key, self.value = weight(width, width), weight(width, width), weight(width, width)
        self.inner, self.outer, self.head = weight(width, 32), weight(32, width), weight(width, values)

    def forward(self, tokens):
        x = 4 * (self.tokens[tokens] + self.places[: tokens.shape[1]])
        query, key, value = (self._heads(x @ w) for w in (self.query, self.key, self.value))
        mixed = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + mixed.transpose(1, 2).reshape(x.shape)
        x = x + torch.relu(x @ self.inner) @ self.outer
        return torch.nn.functional.layer_norm(x, (self.width,)) @ self.head * 2

    def _heads(self, x):
        return x.reshape(*x.shape[:2], 2, self.width // 2).transpose(1, 2)


def log_density_of(outputs, edges):
    """Of enumerated outputs; NaN where no input falls."""
    counts = np.histogram(outputs, edges)[0]
    with np.errstate(divide="ignore"):
        return np.where(counts > 0, np.log(counts / len(outputs)), np.nan)


def within(dist, exact, sigmas=2.0):
    """The share of visited bins whose exact value lies within so many standard errors."""
    seen = dist.visited & np.isfinite(exact)
    return float(np.mean(np.abs(dist.log_density - exact)[seen] <= sigmas * dist.error[seen]))


def worst(dist, exact):
    return float(np.nanmax(np.abs(dist.log_density - exact)))
