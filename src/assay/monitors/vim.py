"""ViM: a virtual logit for the part of the features that the training data never uses (Wang et al. 2022)."""

from collections.abc import Iterator

import torch
from torch import Tensor

from assay.errors import InputError
from assay.monitors.metadata import Metadata
from assay.monitors.monitor import Monitor
from assay.monitors.parts.exponentials import log_sum_exp
from assay.monitors.parts.gathered import Gathered
from assay.monitors.parts.head import HeadFit
from assay.monitors.parts.moments import ClassMoments
from assay.monitors.parts.reservoir import Reservoir, checked_limit
from assay.monitors.parts.row_blocks import in_blocks, row_blocks
from assay.monitors.parts.row_keys import RowKeys
from assay.trace import Trace

_ROWS = 1024  # scored at a time: intermediate results stay in cache

_SINGLE = 16.0
"""Rounding over residual, in units of eps, up to which the residual is computed in single precision."""


class ViM(Monitor):
    """s(x) = alpha ||R' (f(x) - o)|| - log sum_k exp l_k(x).

    o = -W^+ b is the point where all logits vanish; R spans what the `dimensions` largest principal
    directions of f - o over the training data leave; alpha matches the mean virtual logit to the mean largest
    logit over a sample of training rows (Eq. 5 of Wang et al.). The paper's score is the softmax probability
    of the virtual logit; this is its log-odds, which order inputs alike and do not round to 1. W and b are
    recovered from the training Trace (see `head.py`), so the layer must be the input of the last Linear.

    `dimensions` defaults to the paper's rule: 1000 for d >= 1500 and 512 for d >= 768; below that d // 2.
    Scoring is one product of N x d x (d - dimensions).
    """

    metadata = Metadata(
        score="α ‖residual of z‖ - log Σ exp f",
        fit="N * (d + C)**2",
        cost="N * d**2 / 2",
        state="2 * d**2",
        paper="Wang et al.",
        year=2022,
    )

    origin_: Tensor
    residual_: Tensor
    alpha_: float

    def __init__(
        self,
        *,
        layer: str = "penultimate",
        dimensions: int | None = None,
        limit: int | None = 10_000,
        seed: int = 0,
    ) -> None:
        if dimensions is not None and dimensions < 0:
            raise InputError(
                f"expected at least 0 dimensions, or None for the paper's rule, got {dimensions}"
            )
        self.layer = layer
        self.dimensions = dimensions
        self.limit = checked_limit(limit)
        self.seed = seed

    def _gather(self, traces: Iterator[Trace]) -> dict[str, Gathered]:
        kept, size = Reservoir(self.limit), self.dimensions_[self.layer]
        fit, moments = HeadFit(self.layer, size, self.classes_), ClassMoments(1, size)
        for features, logits in in_blocks(self._sampling(traces, kept)):
            fit.add(features, logits)
            moments.add(features, torch.zeros(len(features), dtype=torch.long))
        return {"fit": fit, "moments": moments, "kept": kept}

    def _describe(self, fit: HeadFit, moments: ClassMoments, kept: Reservoir) -> None:
        head = fit.head()
        origin = -torch.linalg.pinv(head.weight) @ head.bias
        away = moments.mean - origin
        second = moments.scatter / moments.rows + torch.outer(away, away)
        dtype, residual = self._residual_space(second)
        self.origin_, self.residual_ = origin.to(dtype), residual.to(dtype).contiguous()
        self.alpha_ = float(
            kept.rows("largest").double().mean() / self._residuals(kept.rows("features")).mean()
        )

    def _sampling(self, traces: Iterator[Trace], kept: Reservoir) -> Iterator[tuple[Tensor, Tensor]]:
        keys = RowKeys(self.seed)
        for trace in traces:
            features = trace.layer(self.layer)
            kept.add(keys.next(trace.logits), {"features": features, "largest": trace.logits.amax(dim=1)})
            yield features, trace.logits

    def _residual_space(self, second: Tensor) -> tuple[torch.dtype, Tensor]:
        """The space, and the precision in which to project on it: each product is rounded by eps of itself,
        so that large ones which cancel to a small residual need double."""
        size = len(second)
        wanted = _default_dimensions(size) if self.dimensions is None else self.dimensions
        if wanted >= size:
            raise InputError(
                f"expected fewer dimensions than the {size} features, got {wanted}; lower dimensions="
            )
        variances, directions = torch.linalg.eigh(second)
        rank = int((variances > 1e-12 * variances[-1]).sum())
        if rank <= wanted:
            self.remedy_ = (
                f"the features span {rank} of {size} directions, no more than the {wanted} principal ones, "
                f"and nothing would be left over; {rank // 2} were used; fit on more rows or set dimensions="
            )
            wanted = rank // 2
        residual, left = directions[:, : size - wanted], variances[: size - wanted].sum().sqrt()
        rounding = (second.diagonal().sqrt()[:, None] * residual).norm()
        return torch.float32 if rounding <= _SINGLE * left else torch.float64, residual

    def _score(self, trace: Trace) -> Tensor:
        return self.alpha_ * self._residuals(trace.layer(self.layer)) - log_sum_exp(trace.logits)

    def _residuals(self, features: Tensor) -> Tensor:
        """||R' (f - o)||, one per row."""
        squares = [
            ((rows.to(self.residual_.dtype) - self.origin_) @ self.residual_).square().sum(dim=1)
            for rows in row_blocks(features, _ROWS)
        ]
        return torch.cat(squares).double().sqrt()


def _default_dimensions(size: int) -> int:
    return 1000 if size >= 1500 else 512 if size >= 768 else size // 2
