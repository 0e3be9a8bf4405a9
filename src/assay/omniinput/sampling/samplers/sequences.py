"""Sequences of a language model, written token by token: drawn at several betas, or selected.

Each sequence stands for a number m of sequences: the sum of m f(x) over all that are written estimates the
sum of f(x) over all inputs without bias, for any f. The last token is left open; it is summed over (see
last_token).

A drawn sequence comes from q_beta(x) = prod_t p(x_t | x_<t)^beta psi_t(x_t) / S_t(beta), which is known at
all betas, and m is one over the expected number of times that any of them draws it (the balance heuristic,
Veach and Guibas 1995).

Selected sequences go on with those of their continuations that a selection keeps (see selection; sequential
Monte Carlo, Del Moral et al. 2006). Which ones is decided by m p(x_1..t)^b psi, where b is the beta of the
sequence at that position; a continuation kept by chance stands for as many more as it was unlikely to be. A
low temperature is reached step by step, from the model's own at the first token: what is selected at a low
temperature from the start gives up unlikely openings that are followed by what is certain, and those may be
most of what is likely.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.omniinput.sampling.kernels.suffix import LanguageProblem
from assay.omniinput.sampling.problem import Evaluated
from assay.omniinput.sampling.samplers.selection import selected
from assay.omniinput.sampling.vocabulary import NextTokens, Tilt

Array = NDArray[np.float64]
Sizes = NDArray[np.int64]

SAVED_ROWS = 32  # of the last batch, for a checkpoint to compare


@dataclass(frozen=True)
class Sequences:
    """A batch of sequences but for their last token, the rows of each beta together."""

    prefixes: Tensor  # (rows, length - 1)
    outputs: Array  # negative log-likelihood of the prefix
    log_counts: Array  # ln m
    last: NextTokens  # what may come last
    own: Tensor  # (rows,) the number of its beta
    following: Tensor | None = None  # (rows, length - 1, betas) ln S of what follows each token
    drawn_weights: Array | None = None  # ln weights at its beta, had it been drawn as it is

    @property
    def completions(self) -> Array:
        """How many inputs each prefix is the beginning of."""
        every = torch.full((len(self.prefixes),), self.last.values)
        return self.last.unless_ended(every, 1).double().numpy()

    def by_beta(self, logs: Array) -> Array:
        """ln of the sums of these over the rows of each beta."""
        return np.logaddexp.reduceat(logs, np.flatnonzero(np.diff(self.own.numpy(), prepend=-1)), axis=0)

    def examples(self) -> Evaluated:
        """Rows of all betas, with token 0, or the end where that has come, as their last token."""
        rows = torch.linspace(0, len(self.prefixes) - 1, min(SAVED_ROWS, len(self.prefixes))).long()
        last = self.last.picked(rows)
        token = last.unless_ended(torch.zeros(len(rows), dtype=torch.int64), last.end)
        outputs = torch.from_numpy(self.outputs)[rows] - last.of(token)
        return torch.cat([self.prefixes[rows], token[:, None]], dim=1), outputs


def paths(betas: Array, places: int) -> Array:
    """The beta of every position, (betas, places): constant up to 1, beyond it rising evenly from 1.

    >>> paths(np.array([0.5, 2.0]), 3)
    array([[0.5, 0.5, 0.5],
           [1. , 1.5, 2. ]])
    """
    along = np.linspace(0.0, 1.0, places) if places > 1 else np.ones(1)
    return np.where(betas[:, None] > 1, 1 + (betas[:, None] - 1) * along, betas[:, None])


@dataclass(frozen=True)
class Writer:
    """Writes sequences at these betas; psi is given per beta, position and entry, and the entry per token."""

    problem: LanguageProblem
    betas: Array
    log_psi: Tensor | None
    entry: Tensor
    generator: torch.Generator

    def drawn(self, sizes: Sizes) -> Sequences:
        """So many of each beta, each token drawn; with ln S at every beta and position, to learn from."""
        lm, clock = self.problem.lm, self.problem.clock
        own, betas = numbers(sizes), torch.from_numpy(self.betas)
        tokens, log_likelihood, normalisers = self._blank(len(own))
        log_q = torch.zeros(len(own), len(betas), dtype=torch.float64)
        following, cache = lm.begin(len(own), clock)
        for place in range(lm.length - 1):
            tilt = self._tilt(place, following)
            normalisers[:, place] = following.log_normalisers(betas, tilt)
            weighed = following.weighed(betas, own, tilt)
            token = weighed.drawn(self.generator)
            log_probs = weighed.tokens.of(token)
            log_q += log_probs[:, None] * betas + weighed.ahead(token) - normalisers[:, place]
            log_likelihood += log_probs
            tokens[:, place] = token
            del weighed
            following, cache = lm.feed(token[:, None], cache, clock)
        normalisers[:, -1] = following.log_normalisers(betas)
        log_counts = -torch.logsumexp(log_q + torch.from_numpy(np.log(sizes)), dim=1)
        return Sequences(
            tokens, -log_likelihood.numpy(), log_counts.numpy(), following, own, normalisers[:, 1:]
        )

    def selected(self, sizes: Sizes, part: slice, learn: bool) -> Sequences:
        """So many of each beta of a part, selected along its path; to learn from at its beta throughout.

        Before the first token the sequences of a beta are one, and it stands for itself.
        """
        lm, clock = self.problem.lm, self.problem.clock
        own, betas = numbers(sizes, part), torch.from_numpy(self.betas)
        group = own.numpy() - part.start
        tokens, log_likelihood, normalisers = self._blank(len(own), learn)
        log_counts = torch.full((len(own),), -torch.inf, dtype=torch.float64)
        log_counts[torch.from_numpy(np.cumsum(sizes[part]) - sizes[part])] = 0.0
        drawn = torch.zeros_like(log_counts)
        along = torch.from_numpy(paths(self.betas, lm.length - 1))
        following, cache = lm.begin(len(own), clock)
        for place in range(lm.length - 1):
            tilt, at = self._tilt(place, following), betas if learn else along[:, place]
            if learn:
                normalisers[:, place] = following.log_normalisers(betas, tilt)
            weighed, beta = following.weighed(at, own, tilt), at[own]
            log_normalisers = weighed.log_normalisers
            log_weight = log_counts + beta * log_likelihood + log_normalisers
            found = selected(weighed, log_weight, group, self.generator)
            origin, token = found.origin, found.tokens
            tokens, following = tokens[origin], following.picked(origin)
            log_likelihood = log_likelihood[origin] + following.of(token)
            ahead = _ahead(tilt, own, token, following)
            log_counts = found.log_weight - beta * log_likelihood - ahead
            if learn:
                normalisers = normalisers[origin]
                drawn = (drawn + log_normalisers)[origin] - ahead
            cache = lm.picked(cache, origin, tokens[:, :place], clock)
            tokens[:, place] = token
            del weighed
            following, cache = lm.feed(token[:, None], cache, clock)
        written = Sequences(tokens, -log_likelihood.numpy(), log_counts.numpy(), following, own)
        if not learn:
            return written
        normalisers[:, -1] = following.log_normalisers(betas)
        return replace(written, following=normalisers[:, 1:], drawn_weights=drawn.numpy())

    def _blank(self, rows: int, learn: bool = True) -> tuple[Tensor, Tensor, Tensor]:
        """Room for tokens, ln p of sequences, and ln S of positions if they are to be learned from."""
        length = self.problem.lm.length
        self.problem.evaluations += rows
        return (
            torch.empty(rows, length - 1, dtype=torch.int64),
            torch.zeros(rows, dtype=torch.float64),
            torch.empty(rows, length if learn else 0, len(self.betas), dtype=torch.float64),
        )

    def _tilt(self, place: int, following: NextTokens) -> Tilt | None:
        """psi of every token at a position, written out for as long as the position takes."""
        if self.log_psi is None:
            return None
        return Tilt(self.log_psi[:, place][:, self.entry].to(following.logits.device))


def numbers(sizes: Sizes, part: slice = slice(None)) -> Tensor:
    """The number of the beta of every row."""
    which = np.arange(len(sizes))[part]
    return torch.from_numpy(which.repeat(sizes[part]))


def _ahead(tilt: Tilt | None, own: Tensor, tokens: Tensor, following: NextTokens) -> Tensor:
    """ln psi of tokens at their own beta; zero where there is nothing to look ahead to."""
    if tilt is None:
        return torch.zeros(len(tokens), dtype=torch.float64)
    return following.unless_ended(tilt.own(own, tokens))
