"""Lookahead: draw tokens with regard to what they lead to, as learned from earlier draws.

Drawing a sequence token by token from p(x_t | x_<t)^beta / S_t(beta) ignores that some tokens lead to
contexts where the model is more certain; the product of the ignored S_t makes the weights vary. Drawing from
p^beta psi / S instead, with psi_t(v) the S that follows token v at position t, takes this into account
(twisted proposals, Whiteley and Lee 2014; for language models Zhao et al. 2024). Any psi gives an unbiased
result; a good one gives weights that hardly vary. psi depends on the token and its position alone, which is
exact for a first-order Markov model and an approximation for any other. The table has at most 4,096 tokens,
those that matter most; the others share an entry.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.storage import storable

Array = NDArray[np.float64]

MOST_ENTRIES = 200_000  # positions x tokens; with more, a pilot sees each too rarely to learn from
MOST_TOKENS = 4096
OFTEN = 4.0  # times as often as if all tokens were equally likely: then a token gets an entry of its own
LEAST_DRAWS = 3  # more than this, so that a few chance repetitions do not fill the table
PSEUDO_COUNTS = 2.0
NEARNESS = 0.25  # weight of a draw at the next beta


@storable("omniinput.Lookahead")
@dataclass
class Lookahead:
    """Weighted sums and weights of ln S(following context), per beta, position and entry: (K, T, E).

    Of a small vocabulary every token has its entry. Of a large one, those tokens do that are drawn much more
    often than the others; the last entry stands for the rest. `entry` (V,) is the entry of each token and
    `drawn` (V,) how often it was drawn.
    """

    betas: Array
    sums: Tensor
    weights: Tensor
    entry: Tensor
    drawn: Tensor
    batches: int = 0

    @classmethod
    def none(cls, betas: Array, positions: int, values: int) -> "Lookahead":
        """Nothing learned: psi is one."""
        most = min(MOST_TOKENS, MOST_ENTRIES // positions)
        small = values <= most
        entries = values if small else most + 1
        nothing = torch.zeros(len(betas), positions, entries, dtype=torch.float64)
        entry = torch.arange(values) if small else torch.full((values,), most)
        return cls(betas, nothing, nothing.clone(), entry, torch.zeros(values, dtype=torch.float64))

    def watch(self, tokens: Tensor, following: Tensor, own: Tensor) -> None:
        """Tokens (rows, T) drawn at the beta with number `own`, and ln S of what follows each (rows, T, K).

        Constant factors of psi cancel, so only differences between tokens are kept: each batch is moved by
        as much as it differs, on average, from what was learned of the same tokens. (Its own mean would not
        do, which depends on which tokens it has.) Later batches count more: their ln S already include what
        was learned before, and look farther ahead.
        """
        betas, positions, entries = self.sums.shape
        self._admit(tokens)
        place = (torch.arange(positions) * entries + self.entry[tokens]).flatten()
        learned = self.log_values().view(betas, -1)[:, place].view(betas, *tokens.shape).permute(1, 2, 0)
        self.batches += 1
        near = self.batches * NEARNESS ** (torch.arange(betas)[:, None] - own).abs().double()
        centred = following - torch.einsum("kr,rtk->tk", near, following - learned) / near.sum(dim=1)
        weight = near[:, :, None].expand(-1, -1, positions).flatten(1)
        self.weights.view(betas, -1).index_add_(1, place, weight)
        self.sums.view(betas, -1).index_add_(1, place, weight * centred.permute(2, 0, 1).flatten(1))

    def _admit(self, tokens: Tensor) -> None:
        """Give entries of their own to the tokens drawn most often, while there are any left."""
        values, rest = len(self.entry), self.sums.shape[2] - 1
        if values == self.sums.shape[2]:
            return
        self.drawn += torch.bincount(tokens.flatten(), minlength=values)
        often = (self.drawn > LEAST_DRAWS + OFTEN * self.drawn.sum() / values) & (self.entry == rest)
        taken = int((self.entry != rest).sum())
        new = often.nonzero()[:, 0]
        new = new[self.drawn[new].argsort(descending=True, stable=True)][: rest - taken]
        self.entry[new] = torch.arange(taken, taken + len(new))

    def log_values(self, along: Array | None = None) -> Tensor:
        """ln psi of every entry, (K, T, E): means shrunk towards that of the token over all positions, and
        those towards zero. `along` (K', T) are other betas, a path each; then it is interpolated for them."""
        pseudo = PSEUDO_COUNTS * max(self.batches, 1)
        anywhere = self.sums.sum(dim=1) / (self.weights.sum(dim=1) + pseudo)
        found = (self.sums + pseudo * anywhere[:, None]) / (self.weights + pseudo)
        return found if along is None else torch.einsum("ntk,kte->nte", self._mixing(along), found)

    def moved(self, new: Array) -> "Lookahead":
        """For other betas, by linear interpolation."""
        mixing = self._mixing(new)
        return Lookahead(
            new,
            torch.einsum("nk,kte->nte", mixing, self.sums),
            torch.einsum("nk,kte->nte", mixing, self.weights),
            self.entry,
            self.drawn,
            self.batches,
        )

    def _mixing(self, new: Array) -> Tensor:
        """How much of what was learned at each beta goes into each new one: (*new, K)."""
        return torch.from_numpy(
            np.stack([np.interp(new, self.betas, row) for row in np.eye(len(self.betas))], axis=-1)
        )
