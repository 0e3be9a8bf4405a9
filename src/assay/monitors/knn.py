"""KNN: doubt what is far from its k-th nearest training feature (Sun et al. 2022)."""

from collections.abc import Iterator

import torch
from torch import Tensor

from assay.errors import InputError
from assay.monitors.monitor import Monitor
from assay.monitors.parts.nearest import nearest_rows
from assay.monitors.parts.reservoir import Reservoir
from assay.trace import Trace

_ROWS = 4096  # whose last step is taken in double precision at a time


class KNN(Monitor):
    """s(x) = ||z - z_(k)||, with z = f(x) / ||f(x)|| and z_(k) the k-th nearest of the training rows.

    Exact search (faiss where installed: pip install 'assay[faiss]'). Keeps every training row, or a uniform
    sample of `sample` rows (the paper's alpha). The neighbour is found in single precision and its distance
    computed in double. Scoring is one product of N x n x d; memory beyond the rows kept is bounded.
    """

    bank_: Tensor
    neighbour_: int

    def __init__(
        self, layer: str = "penultimate", *, k: int = 50, sample: int | None = None, seed: int = 0
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
            kept.add(normalised(trace.layer(self.layer)))
        self.bank_ = kept.rows()
        self.neighbour_ = min(self.k, len(self.bank_))
        if self.neighbour_ < self.k:
            self.remedy_ = (
                f"there were fewer than k = {self.k} rows, so that the distance is to the farthest of the "
                f"{self.neighbour_} there were; fit on more rows or lower k"
            )

    def _score(self, trace: Trace) -> Tensor:
        return torch.cat(
            [self._distances(normalised(rows)) for rows in torch.split(trace.layer(self.layer), _ROWS)]
        )

    def _traced_score(self, trace: Trace) -> Tensor:
        queries = normalised(trace.layer(self.layer))
        products = queries @ self.bank_.T - self.bank_.square().sum(dim=1) / 2
        found = products.topk(self.neighbour_, dim=1).indices[:, -1]
        return (queries.double() - self.bank_[found].double()).square().sum(dim=1).sqrt()

    def _distances(self, queries: Tensor) -> Tensor:
        scores = torch.full((len(queries),), torch.nan, dtype=torch.float64)
        usable = torch.isfinite(queries.sum(dim=1))  # a search has no place for NaN
        if usable.any():
            found = nearest_rows(queries[usable], self.bank_, self.neighbour_)[:, -1]
            scores[usable] = (queries[usable].double() - self.bank_[found].double()).norm(dim=1)
        return scores


def normalised(features: Tensor) -> Tensor:
    """Rows of unit length; a zero row stays zero."""
    return torch.nn.functional.normalize(features.float(), dim=1)
