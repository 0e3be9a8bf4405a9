"""The parent of monitors that compare an input with its nearest training rows."""

from abc import abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor

from assay.errors import InputError
from assay.monitors.monitor import Monitor
from assay.monitors.parts.gathered import Gathered
from assay.monitors.parts.reservoir import Reservoir, checked_limit
from assay.monitors.parts.row_keys import RowKeys
from assay.trace import Trace

_LEAST = 1e-12  # length by which a row is divided


class _NeighbourBank(Monitor):
    """Keeps a bank of training rows, all of them or a uniform sample of `limit`, and looks up k of them."""

    bank_: Tensor
    neighbours_: int

    def __init__(self, *, layer: str, k: int, limit: int | None, seed: int) -> None:
        if k < 1:
            raise InputError(f"expected k of at least 1 neighbour, got {k}")
        self.layer = layer
        self.k = k
        self.limit = checked_limit(limit)
        self.seed = seed

    @abstractmethod
    def _rows_to_keep(self, trace: Trace) -> Tensor:
        """The part of each row that the bank keeps."""

    @abstractmethod
    def _compared(self, queries: Tensor) -> Tensor:
        """One number per finite query, from its neighbours in the bank."""

    def _gather(self, traces: Iterator[Trace]) -> dict[str, Gathered]:
        kept, keys = Reservoir(self.limit), RowKeys(self.seed)
        for trace in traces:
            drawn = keys.next(trace.logits)
            near = kept.near(drawn)
            kept.add(drawn[near], self._rows_to_keep(trace[near]))
        return {"kept": kept}

    def _describe(self, kept: Reservoir) -> None:
        self.bank_ = kept.rows()
        self.neighbours_ = min(self.k, len(self.bank_))
        if self.neighbours_ < self.k:
            self.remedy_ = (
                f"there were fewer than k = {self.k} rows, so k = {self.neighbours_} was used; fit on more "
                "rows or lower k"
            )

    def _compared_where_finite(self, queries: Tensor) -> Tensor:
        """`_compared`, and NaN for queries that are not finite: a search has no place for NaN."""
        usable = torch.isfinite(queries.sum(dim=1))
        if usable.all():
            return self._compared(queries)
        results = torch.full((len(queries),), torch.nan, dtype=torch.float64)
        if usable.any():
            results[usable] = self._compared(queries[usable])
        return results


def normalised(features: Tensor) -> Tensor:
    """Rows of unit length; a zero row stays zero."""
    single = features.float()
    length: Tensor = torch.linalg.vector_norm(single, dim=1, keepdim=True)
    return single / length.clamp(min=_LEAST)
