"""GEN: a generalised entropy of the largest probabilities (Liu, Lochman and Zach 2023)."""

import torch
from torch import Tensor

from assay.errors import InputError
from assay.monitors.metadata import Metadata
from assay.monitors.monitor import Monitor
from assay.monitors.parts.exponentials import Exponentials
from assay.trace import Trace


class GEN(Monitor):
    """s(x) = sum over the M largest p_k of p_k^gamma (1 - p_k)^gamma, Eqs. 4 and 5 of Liu et al.

    The paper's score is the negative, high for what is known. Its gamma of 0.1 makes the score sensitive to
    how close the top probability is to 1, so 1 - p of the top class is computed as the sum of the others,
    which does not round to zero.

    >>> trace = Trace(torch.zeros(1, 2))
    >>> GEN(gamma=0.5).fit(trace).score(trace).tolist()
    [1.0]
    """

    metadata = Metadata(
        score="Σ p^γ (1 - p)^γ over the `top` largest p", paper="Liu, Lochman and Zach", year=2023
    )

    def __init__(self, *, gamma: float = 0.1, top: int = 100) -> None:
        if not gamma > 0 or top < 1:
            raise InputError(f"expected gamma above 0 and top of at least 1, got {gamma} and {top}")
        self.gamma = gamma
        self.top = top

    def _score(self, trace: Trace) -> Tensor:
        found = Exponentials.of(trace.logits)
        powers = found.powers
        if self.top < len(powers):
            powers = powers.topk(self.top, dim=0).values
        rest = torch.where(powers < 1, found.total - powers, found.others)
        # x^gamma as exp(gamma log x), which is vectorised; log 0 gives 0, as it should.
        return (powers * rest / found.total.square()).log_().mul_(self.gamma).exp_().sum(dim=0)
