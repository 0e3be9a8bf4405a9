"""Weighted sequences: a batch, and its effective size."""

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
    own: torch.Tensor  # (rows,) the number of the beta it was drawn at

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


def drawn_particles(drawn: Array, selected: Array, own: NDArray[np.int64]) -> float:
    """The effective share of sequences if they had been drawn instead of selected, at the worst of all betas.

    With weights w under the proposal it is E[w]^2 / E[w^2]; selected sequences are weighted draws of the
    target, under which the same is 1 / (E[w] E[1 / w]).
    """
    start = np.flatnonzero(np.diff(own, prepend=-1))
    total = np.logaddexp.reduceat(selected, start)
    both = [np.logaddexp.reduceat(selected + sign * drawn, start) - total for sign in (1, -1)]
    return float(np.exp(-both[0] - both[1]).min())


def effective_particles(blocks: Mapping[str, Array], selected: bool) -> Array:
    """Effective sample size of every bin, (sum w)^2 / sum w^2 over independent prefixes.

    For selected sequences, the number of independent ones that would vary as much as batches do.
    """
    with np.errstate(invalid="ignore"):
        logs = 2 * logsumexp(blocks["bins"], axis=0) - logsumexp(blocks["squares"], axis=0)
    found = np.where(np.isnan(logs), 0.0, np.exp(logs))
    if not selected:
        return np.asarray(found)
    batches = np.exp(logsumexp(blocks["batches"]))
    excess = 1 / np.maximum(found, 1e-300) - 1 / batches
    return np.asarray(np.where(found > 0, 1 / np.maximum(excess, 1e-9), 0.0))
