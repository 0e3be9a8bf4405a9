"""NNGuide: energy, guided by the confidence of similar training rows (Park et al. 2023)."""

from collections.abc import Iterator

import torch
from torch import Tensor

from assay.errors import InputError
from assay.monitors.knn import normalised
from assay.monitors.monitor import Monitor
from assay.monitors.parts.exponentials import log_sum_exp
from assay.monitors.parts.nearest import largest_products
from assay.monitors.parts.reservoir import Reservoir
from assay.trace import Trace


class NNGuide(Monitor):
    """s(x) = -E(x) G(x), with E = log sum_k exp f_k and G the mean of the k largest E(x_i) cos(z(x), z(x_i)).

    x_i are the training rows, or a uniform sample of `sample` of them (1 % for ImageNet in the paper, all for
    CIFAR). Exact search; scoring is one product of N x n x d, memory beyond the rows kept is bounded.
    """

    bank_: Tensor
    neighbours_: int

    def __init__(
        self, layer: str = "penultimate", *, k: int = 10, sample: int | None = None, seed: int = 0
    ) -> None:
        if k < 1 or (sample is not None and sample < 1):
            raise InputError(f"expected k and sample of at least 1, got {k} and {sample}")
        self.layer = layer
        self.k = k
        self.sample = sample
        self.seed = seed

    def _fit(self, traces: Iterator[Trace]) -> None:
        kept = Reservoir(self.sample, self.seed)
        for trace in traces:
            kept.add(normalised(trace.layer(self.layer)) * _energy(trace)[:, None].float())
        self.bank_ = kept.rows()
        self.neighbours_ = min(self.k, len(self.bank_))
        if self.neighbours_ < self.k:
            self.remedy_ = (
                f"there were fewer than k = {self.k} rows, so that all {self.neighbours_} guide; fit on more "
                "rows or lower k"
            )

    def _score(self, trace: Trace) -> Tensor:
        queries = normalised(trace.layer(self.layer))
        guidance = torch.full((len(trace),), torch.nan, dtype=torch.float64)
        usable = torch.isfinite(queries.sum(dim=1))  # a search has no place for NaN
        if usable.any():
            found = largest_products(queries[usable], self.bank_, self.neighbours_)
            guidance[usable] = found.double().mean(dim=1)
        return -_energy(trace) * guidance

    def _traced_score(self, trace: Trace) -> Tensor:
        products = normalised(trace.layer(self.layer)) @ self.bank_.T
        guidance = products.topk(self.neighbours_, dim=1).values.double().mean(dim=1)
        return -_energy(trace) * guidance


def _energy(trace: Trace) -> Tensor:
    return log_sum_exp(trace.logits)
