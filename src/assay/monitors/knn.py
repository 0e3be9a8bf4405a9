"""KNN: doubt what is far from its k-th nearest training feature (Sun et al. 2022)."""

import torch
from torch import Tensor

from assay.monitors.metadata import Metadata
from assay.monitors.parts.nearest import nearest_rows
from assay.monitors.parts.neighbour_bank import _NeighbourBank, normalised
from assay.monitors.parts.row_blocks import row_blocks
from assay.trace import Trace

_ROWS = 4096  # whose last step is taken in double precision at a time


class KNN(_NeighbourBank):
    """s(x) = ||z - z_(k)||, with z = f(x) / ||f(x)|| and z_(k) the k-th nearest of the training rows.

    Exact search (faiss where installed: pip install 'assay[faiss]'). Keeps every training row, or a uniform
    sample of `limit` rows (the paper's alpha). The neighbour is found in single precision and its distance
    computed in double. Memory beyond the rows kept is bounded.
    """

    metadata = Metadata(
        score="distance of z / ‖z‖ to its k-th nearest training row",
        fit="N * d",
        cost="N * M * d",
        state="4 * M * d",
        paper="Sun et al.",
        year=2022,
    )

    def __init__(
        self, *, layer: str = "penultimate", k: int = 50, limit: int | None = None, seed: int = 0
    ) -> None:
        super().__init__(layer=layer, k=k, limit=limit, seed=seed)

    def _rows_to_keep(self, trace: Trace) -> Tensor:
        return normalised(trace.layer(self.layer))

    def _score(self, trace: Trace) -> Tensor:
        parts = row_blocks(trace.layer(self.layer), _ROWS)
        return torch.cat([self._compared_where_finite(normalised(rows)) for rows in parts])

    def _traced_score(self, trace: Trace) -> Tensor:
        queries = normalised(trace.layer(self.layer))
        products = queries @ self.bank_.T - self.bank_.square().sum(dim=1) / 2
        found = products.topk(self.neighbours_, dim=1).indices[:, -1]
        return (queries.double() - self.bank_[found].double()).square().sum(dim=1).sqrt()

    def _compared(self, queries: Tensor) -> Tensor:
        found = nearest_rows(queries, self.bank_, self.neighbours_)[:, -1]
        distances: Tensor = torch.linalg.vector_norm(queries.double() - self.bank_[found].double(), dim=1)
        return distances
