"""ViM: a virtual logit for the part of the features that the training data never uses (Wang et al. 2022)."""

from collections.abc import Iterator

import torch
from torch import Tensor

from assay.errors import InputError
from assay.monitors.blocks import row_blocks
from assay.monitors.exponentials import log_sum_exp
from assay.monitors.head import Head, recovered_head
from assay.monitors.monitor import Monitor
from assay.monitors.reservoir import Reservoir
from assay.trace import Trace

_ROWS = 1024  # scored at a time: intermediate results stay in cache


class ViM(Monitor):
    """s(x) = alpha ||R' (f(x) - o)|| - log sum_k exp l_k(x).

    o = -W^+ b is the point where all logits vanish; R spans what the `dimensions` largest principal
    directions of f - o over the training data leave; alpha matches the mean virtual logit to the mean largest
    logit over a sample of training rows (Eq. 5 of Wang et al.). The paper's score is the softmax probability
    of the virtual logit; this is its log-odds, which order inputs alike and do not round to 1. W and b are
    recovered from the training Trace (see `head.py`), so the layer must be the input of the last Linear.

    `dimensions` defaults to the paper's rule: 1000 for d >= 1500 and 512 for d >= 768; below that d // 2.
    Fitting is one product of N x (d + C) x (d + C); scoring one of N x d x (d - dimensions).
    """

    origin_: Tensor
    residual_: Tensor
    alpha_: float

    def __init__(
        self,
        layer: str = "penultimate",
        *,
        dimensions: int | None = None,
        sample: int | None = 10_000,
        seed: int = 0,
    ) -> None:
        if (dimensions is not None and dimensions < 0) or (sample is not None and sample < 1):
            raise InputError(
                f"expected dimensions of at least 0 and a sample of at least 1, got {dimensions} and {sample}"
            )
        self.layer = layer
        self.dimensions = dimensions
        self.sample = sample
        self.seed = seed

    def _fit(self, traces: Iterator[Trace]) -> None:
        kept = Reservoir(self.sample, self.seed)
        largest = Reservoir(self.sample, self.seed)  # same seed, same rows

        def keep(trace: Trace) -> None:
            kept.add(trace.layer(self.layer))
            largest.add(trace.logits.amax(dim=1))

        head = recovered_head(traces, self.layer, keep)
        origin = -torch.linalg.pinv(head.weight) @ head.bias
        residual = self._residual_space(head, origin)
        rows = kept.rows().double() - origin
        norms = (rows @ residual).norm(dim=1)
        self.alpha_ = float(largest.rows().double().mean() / norms.mean())
        # Where the residual is a small part of a row, single precision would round it away.
        small = norms.mean() < 0.03 * rows.norm(dim=1).mean()
        dtype = torch.float64 if small else torch.float32
        self.origin_, self.residual_ = origin.to(dtype), residual.to(dtype).contiguous()

    def _residual_space(self, head: Head, origin: Tensor) -> Tensor:
        size = len(origin)
        wanted = _default_dimensions(size) if self.dimensions is None else self.dimensions
        if wanted >= size:
            raise InputError(
                f"expected fewer dimensions than the {size} features, got {wanted}; lower dimensions="
            )
        away = head.mean - origin
        second = head.scatter / head.rows + torch.outer(away, away)
        variances, directions = torch.linalg.eigh(second)
        rank = int((variances > 1e-12 * variances[-1]).sum())
        if rank <= wanted:
            self.remedy_ = (
                f"the features span {rank} of {size} directions, no more than the {wanted} principal ones, "
                f"and nothing would be left over; {rank // 2} were used; fit on more rows or set dimensions="
            )
            wanted = rank // 2
        residual: Tensor = directions[:, : size - wanted]
        return residual

    def _score(self, trace: Trace) -> Tensor:
        squares = [
            ((rows.to(self.residual_.dtype) - self.origin_) @ self.residual_).square().sum(dim=1)
            for rows in row_blocks(trace.layer(self.layer), _ROWS)
        ]
        return self.alpha_ * torch.cat(squares).double().sqrt() - log_sum_exp(trace.logits)


def _default_dimensions(size: int) -> int:
    return 1000 if size >= 1500 else 512 if size >= 768 else size // 2
