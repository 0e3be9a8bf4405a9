"""What a language model has memorised after a prompt: every continuation below a loss, found by search.

The loss of a beginning never exceeds that of the whole, so beginnings above the limit are cut off. A limit of
z nats leaves at most e^z sequences of any length, whatever the vocabulary: at low loss the list is exact and
short where sampling would only estimate how long it is. Where it is too long for the budget, the count of the
rest is left to `sample_outputs`.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from assay.errors import InputError
from assay.notebook import Shown
from assay.omniinput.sampling.language_model import CausalLM
from assay.omniinput.sampling.vocabulary import NextTokens, blocks
from assay.storage import storable
from assay.table import tabled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@storable("Memorised")
@dataclass(frozen=True, eq=False)
class Memorised(Shown):
    """Continuations with at most `below` nats per token, the likeliest first; each stands there once.

    `complete` says whether there are no others. Otherwise the budget ended first: beginnings that were not
    followed to their end have at most `left_over` of the probability, and the list is a lower bound.
    """

    title: ClassVar[str] = "Continuations at low loss"

    inputs: Tensor
    losses: Tensor
    """Total negative log-likelihood in nats."""
    below: float
    evaluations: int
    left_over: float
    texts: list[str] | None = None

    @property
    def complete(self) -> bool:
        return self.left_over == 0.0

    def __len__(self) -> int:
        return len(self.inputs)

    def summary(self) -> str:
        """How many there are, what they have of the probability, and the likeliest."""
        length = self.inputs.shape[1]
        share = float((-self.losses).exp().sum())
        number = f"{len(self)}" if self.complete else f"At least {len(self)}"
        lines = [
            f"{number} continuations of {length} tokens lie at or below {self.below:g} nats per token; "
            f"together they have {share:.2g} of the probability. Found in {self.evaluations} evaluations."
        ]
        if not self.complete:
            lines.append(
                f"The budget ended first: beginnings with {self.left_over:.2g} of the probability were not "
                "followed. Raise the budget, or sample to estimate how many there are."
            )
        return " ".join(lines)

    @tabled
    def to_frame(self) -> pd.DataFrame:
        """A row per continuation: nats per token, probability, text."""
        losses = self.losses.numpy()
        shown = self.texts or [" ".join(map(str, row.tolist())) for row in self.inputs]
        return pd.DataFrame(
            {
                "nats_per_token": losses / self.inputs.shape[1],
                "probability": np.exp(-losses),
                "text": shown,
            }
        )

    def plot(self) -> "Figure":
        """How many continuations there are up to each loss."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6, 3.5))
        axes = figure.add_subplot()
        losses = np.sort(self.losses.numpy()) / max(self.inputs.shape[1], 1)
        axes.step(losses, np.arange(1, len(losses) + 1), where="post")
        axes.set_xlabel("nats per token")
        axes.set_ylabel("continuations")
        return figure


def memorised(lm: CausalLM, below: float, *, budget: int = 20_000) -> Memorised:
    """Every sequence of the model with at most `below` nats per token, as long as the budget lasts.

    The budget is in model evaluations, one per beginning that is followed by one more token; beginnings are
    followed position by position, the likeliest first if there are too many. Memory grows with the number of
    sequences at one position, not with the vocabulary.
    """
    if not 0 < below < torch.inf or budget < 1:
        raise InputError(
            f"expected below above 0 nats per token and a positive budget, got {below} and {budget}; "
            "a memorised text has less than 0.5"
        )
    if lm.start is None and lm.prompt is None:
        raise InputError(
            "expected a language model with a prompt or a start token, got one whose first token is free; "
            "pass prompt= or start= to CausalLM"
        )
    search = _Search(lm, below * lm.length, budget)
    sites, losses = search.run()
    order = losses.argsort(stable=True)
    inputs = lm.space.embed(sites[order])
    texts = None if lm.decode is None else [lm.decode(row.tolist()) for row in inputs]
    return Memorised(inputs, losses[order], below, search.spent, search.left_over, texts)


@dataclass
class _Search:
    """Breadth first, so that all beginnings of one length go through the model together."""

    lm: CausalLM
    limit: float
    budget: int
    spent: int = 0
    left_over: float = 0.0

    def run(self) -> tuple[Tensor, Tensor]:
        sites = torch.empty(1, 0, dtype=torch.int64)
        losses = torch.zeros(1, dtype=torch.float64)
        for place in range(self.lm.length):
            sites, losses = self._affordable(sites, losses, self.lm.length - place)
            parts = [self._extended(*part) for part in self._parts(sites, losses)]
            if not parts:
                return torch.empty(0, self.lm.length, dtype=torch.int64), torch.empty(0, dtype=torch.float64)
            sites, losses = (torch.cat(column) for column in zip(*parts, strict=True))
        return sites, losses

    def _affordable(self, sites: Tensor, losses: Tensor, positions: int) -> tuple[Tensor, Tensor]:
        """The likeliest beginnings, if all cannot be followed to the end with what is left of the budget."""
        most = max(1, (self.budget - self.spent) // positions)
        if len(losses) <= most:
            return sites, losses
        order = losses.argsort(stable=True)
        self.left_over += float((-losses[order[most:]]).exp().sum())
        return sites[order[:most]], losses[order[:most]]

    def _parts(self, sites: Tensor, losses: Tensor) -> Any:
        size = self.lm.most_rows
        return zip(torch.split(sites, size), torch.split(losses, size), strict=True) if len(sites) else []

    def _extended(self, sites: Tensor, losses: Tensor) -> tuple[Tensor, Tensor]:
        """Each beginning with each token that keeps it within the limit."""
        self.spent += len(sites)
        following, cache = self.lm.begin(len(sites))
        if sites.shape[1]:
            following, _ = self.lm.feed(sites, cache)
        row, token = _within(following, self.limit - losses)
        loss = losses[row] - following.picked(row).of(token)
        return torch.cat([sites[row], token[:, None]], dim=1), loss


def _within(following: NextTokens, room: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and tokens whose -ln p is at most the room of the row."""
    found = []
    for part in blocks(following.logits, len(room)):
        log_probs = following.log_probs(part)
        fits = log_probs >= -room[part].float().to(log_probs.device)[:, None]
        if following.ended is not None:
            ended = following.ended[part].to(fits.device)
            fits[ended] = False
            fits[ended, following.end] = True
        place = fits.nonzero().cpu()
        found.append(place + torch.tensor([part.start, 0]))
    row, token = torch.cat(found).T
    return row, token
