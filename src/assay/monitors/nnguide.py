"""NNGuide: energy, guided by the confidence of similar training rows (Park et al. 2023)."""

from collections.abc import Iterator

from torch import Tensor

from assay.monitors.metadata import Metadata
from assay.monitors.parts.exponentials import log_sum_exp
from assay.monitors.parts.free_energy import with_energies
from assay.monitors.parts.gathered import Gathered
from assay.monitors.parts.nearest import largest_products
from assay.monitors.parts.neighbour_bank import _NeighbourBank, normalised
from assay.trace import Trace


class NNGuide(_NeighbourBank):
    """s(x) = -E(x) G(x), with E = log sum_k exp f_k and G the mean of the k largest E(x_i) cos(z(x), z(x_i)).

    x_i are the training rows, or a uniform sample of `limit` of them (1 % for ImageNet in the paper, all for
    CIFAR). Exact search, as in KNN; memory beyond the rows kept is bounded.
    """

    metadata = Metadata(
        score="-energy × mean of the k largest energy-weighted cosines",
        fit="N * d",
        cost="N * M * d",
        state="4 * M * d",
        paper="Park et al.",
        year=2023,
    )

    def __init__(
        self, *, layer: str = "penultimate", k: int = 10, limit: int | None = None, seed: int = 0
    ) -> None:
        super().__init__(layer=layer, k=k, limit=limit, seed=seed)

    def _gather(self, traces: Iterator[Trace]) -> dict[str, Gathered]:
        return super()._gather(with_energies(traces, "NNGuide"))

    def _rows_to_keep(self, trace: Trace) -> Tensor:
        return normalised(trace.layer(self.layer)) * log_sum_exp(trace.logits)[:, None].float()

    def _score(self, trace: Trace) -> Tensor:
        guidance = self._compared_where_finite(normalised(trace.layer(self.layer)))
        return -log_sum_exp(trace.logits) * guidance

    def _traced_score(self, trace: Trace) -> Tensor:
        products = normalised(trace.layer(self.layer)) @ self.bank_.T
        guidance = products.topk(self.neighbours_, dim=1).values.double().mean(dim=1)
        return -log_sum_exp(trace.logits) * guidance

    def _compared(self, queries: Tensor) -> Tensor:
        return largest_products(queries, self.bank_, self.neighbours_).double().mean(dim=1)
