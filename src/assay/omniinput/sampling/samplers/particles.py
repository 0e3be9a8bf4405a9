"""Weighted sequences: a batch, its effective size, and resampling along the way (Del Moral et al. 2006)."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import logsumexp

from assay.omniinput.sampling.problem import Evaluated
from assay.omniinput.sampling.vocabulary import NextTokens

Array = NDArray[np.float64]

SAVED_ROWS = 32  # of the last batch, for a checkpoint to compare


@dataclass(frozen=True)
class Draw:
    """A batch of prefixes of length - 1 tokens, and the conditional of their last token."""

    prefixes: torch.Tensor
    outputs: Array  # negative log-likelihood of the prefix
    log_weights: Array  # of the prefix, divided by the number of inputs
    last: NextTokens  # what may come last
    following: torch.Tensor | None  # (rows, length - 1, betas) ln S of what follows each token of the prefix

    @property
    def completions(self) -> Array:
        """How many inputs each prefix is the beginning of."""
        every = torch.full((len(self.prefixes),), self.last.values)
        return self.last.unless_ended(every, 1).double().numpy()

    def examples(self) -> Evaluated:
        """Rows of all betas, with token 0, or the end where that has come, as their last token."""
        rows = torch.linspace(0, len(self.prefixes) - 1, min(SAVED_ROWS, len(self.prefixes))).long()
        last = self.last.picked(rows)
        token = last.unless_ended(torch.zeros(len(rows), dtype=torch.int64), last.end)
        outputs = torch.from_numpy(self.outputs)[rows] - last.of(token)
        return torch.cat([self.prefixes[rows], token[:, None]], dim=1), outputs


def resampled(
    log_weights: Array, least: float, generator: torch.Generator
) -> tuple[NDArray[np.int64], float] | None:
    """The row that each row continues from, and the share of groups resampled; None if none was.

    `log_weights` are (groups, rows). A group whose effective share of rows is under `least` is resampled
    systematically, and its log weights are set to their common mean, in place.
    """
    size = log_weights.shape[1]
    top = log_weights.max(axis=1, keepdims=True)
    shares = np.exp(log_weights - top)
    total = shares.sum(axis=1, keepdims=True)
    shares /= total
    poor = 1 / (shares**2).sum(axis=1) < least * size
    if not poor.any():
        return None
    origin = np.arange(log_weights.size).reshape(log_weights.shape)
    offset = torch.rand(len(log_weights), dtype=torch.float64, generator=generator).numpy()[poor]
    # All groups in one search: the cumulated shares of the n-th lie between n and n + 1.
    number = np.arange(len(offset))[:, None]
    places = number + (np.arange(size) + offset[:, None]) / size
    found = np.searchsorted((number + shares[poor].cumsum(axis=1)).ravel(), places.ravel())
    found = (found.reshape(places.shape) - number * size).clip(0, size - 1)
    origin[poor] = origin[poor, :1] + found
    log_weights[poor] = (top + np.log(total / size))[poor]
    return origin, float(poor.mean())


def effective_particles(blocks: Mapping[str, Array], resampling: bool) -> Array:
    """Effective sample size of every bin, (sum w)^2 / sum w^2 over independent prefixes.

    For resampled sequences, the number of independent ones that would vary as much as batches do.
    """
    with np.errstate(invalid="ignore"):
        logs = 2 * logsumexp(blocks["bins"], axis=0) - logsumexp(blocks["squares"], axis=0)
    found = np.where(np.isnan(logs), 0.0, np.exp(logs))
    if not resampling:
        return np.asarray(found)
    batches = np.exp(logsumexp(blocks["batches"]))
    excess = 1 / np.maximum(found, 1e-300) - 1 / batches
    return np.asarray(np.where(found > 0, 1 / np.maximum(excess, 1e-9), 0.0))
