"""Lookahead: draw tokens with regard to what they lead to, as learned from earlier draws.

Drawing a sequence token by token from p(x_t | x_<t)^beta / S_t(beta) ignores that some tokens lead to
contexts where the model is more certain; the product of the ignored S_t makes the weights vary. Drawing from
p^beta psi / S instead, with psi_t(v) the S that follows token v at position t, takes this into account
(twisted proposals, Whiteley and Lee 2014; for language models Zhao et al. 2024). Any psi gives an unbiased
result; a good one gives weights that hardly vary. psi depends on the token and its position alone, which is
exact for a first-order Markov model and an approximation for any other.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.storage import storable

Array = NDArray[np.float64]

MOST_ENTRIES = 200_000  # positions x values; with more, a pilot sees each too rarely to learn from
PSEUDO_COUNTS = 2.0
NEARNESS = 0.25  # weight of a draw at the next beta


@storable("omniinput.Lookahead")
@dataclass
class Lookahead:
    """Weighted sums and weights of ln S(following context), per beta, position and token: (K, T, V)."""

    sums: Tensor
    weights: Tensor
    batches: int = 0

    @classmethod
    def none(cls, betas: int, positions: int, values: int) -> "Lookahead":
        """Nothing learned: psi is one. With too many tokens, one entry stands for all and is never
        learned."""
        size = values if positions * values <= MOST_ENTRIES else 1
        nothing = torch.zeros(betas, positions, size, dtype=torch.float64)
        return cls(nothing, nothing.clone())

    def watch(self, tokens: Tensor, following: Tensor) -> None:
        """Drawn tokens (rows, T), as many rows per beta, and ln S of what follows each (rows, T, K).

        Constant factors of psi cancel, so only differences between tokens are kept. Later batches count
        more: their ln S already include what was learned before, and look farther ahead.
        """
        betas, positions, values = self.sums.shape
        if values == 1:
            return
        self.batches += 1
        drawn_at = torch.arange(len(tokens)) // (len(tokens) // betas)
        near = self.batches * NEARNESS ** (torch.arange(betas)[:, None] - drawn_at).abs().double()
        centred = following - torch.einsum("kr,rtk->tk", near, following) / near.sum(dim=1)
        place = (torch.arange(positions) * values + tokens).flatten()
        for beta in range(betas):
            weight = near[beta][:, None].expand(-1, positions).flatten()
            self.weights[beta].view(-1).index_add_(0, place, weight)
            self.sums[beta].view(-1).index_add_(0, place, weight * centred[:, :, beta].flatten())

    def log_values(self) -> Tensor:
        """ln psi, (K, T, V): means shrunk towards that of the token over all positions, and those towards
        zero."""
        pseudo = PSEUDO_COUNTS * max(self.batches, 1)
        anywhere = self.sums.sum(dim=1) / (self.weights.sum(dim=1) + pseudo)
        return (self.sums + pseudo * anywhere[:, None]) / (self.weights + pseudo)

    def moved(self, old: Array, new: Array) -> "Lookahead":
        """For other betas, by linear interpolation."""
        mixing = torch.from_numpy(np.stack([np.interp(new, old, row) for row in np.eye(len(old))], axis=1))
        return Lookahead(
            torch.einsum("nk,ktv->ntv", mixing, self.sums),
            torch.einsum("nk,ktv->ntv", mixing, self.weights),
            self.batches,
        )
