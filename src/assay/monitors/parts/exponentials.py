"""Functions of logits for output monitors, in double precision: sure predictions keep their order."""

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.network.graph import under_tracer


@dataclass(frozen=True)
class Exponentials:
    """Of logits l (N, C): l - max l and its exponential, class by class, and the sum over all but the top.

    Classes are rows (C, N): sums over a few classes then run along memory, several times faster. The sum of
    the others is kept by itself because 1 + others rounds to 1 where the network is sure, and scores that
    only say 1 or 0 have no order.
    """

    shifted: Tensor
    powers: Tensor
    others: Tensor

    @classmethod
    def of(cls, logits: Tensor, temperature: float = 1.0) -> "Exponentials":
        _, shifted = _shifted(logits, temperature)
        powers = shifted.exp()
        # The sign is 0 for the top class and -1 below it, and costs a fraction of a comparison.
        below = -(powers * shifted.sign()).sum(dim=0)
        # The top class counts 1, and so does each class that ties with it.
        ties = (powers.sum(dim=0) - below).round() - 1
        return cls(shifted, powers, below + ties)

    @property
    def probabilities(self) -> Tensor:
        """(C, N)."""
        return self.powers / (1 + self.others)

    @property
    def entropy(self) -> Tensor:
        """-sum_k p_k log p_k, a sum of terms that are not negative."""
        spread = (self.powers * self.shifted).sum(dim=0)
        return self.others.log1p() - spread / (1 + self.others)


def doubt(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """1 - max_k p_k, p = softmax(l / temperature), as the sum of the other probabilities."""
    # Fewer operations than by `Exponentials`, which is what counts in a guarded call on a single input.
    probabilities = torch.softmax(_columns(logits, temperature), dim=0)
    return probabilities.scatter_(0, logits.argmax(dim=1)[None], 0.0).sum(dim=0)


def log_sum_exp(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """log sum_k exp(l_k / temperature), one per row, in double precision at the price of single."""
    largest, shifted = _shifted(logits, temperature)
    return shifted.exp_().sum(dim=0).log_().add_(largest)


def _shifted(logits: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """max_k l_k / temperature (N,), and (C, N) what is left without it."""
    if under_tracer():  # an exporter follows values, not what is written to memory
        scaled = logits.T.double() / temperature
        return scaled.amax(dim=0), scaled - scaled.amax(dim=0)
    shifted = _columns(logits, temperature)
    largest = shifted.amax(dim=0)
    shifted -= largest
    return largest, shifted


def _columns(logits: Tensor, temperature: float) -> Tensor:
    """(C, N): l / temperature in double precision, in memory of its own."""
    columns = logits.T.to(torch.float64, memory_format=torch.contiguous_format, copy=True)
    return columns if temperature == 1 else columns.div_(temperature)
