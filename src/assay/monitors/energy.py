"""Energy: doubt the input of high free energy (Liu et al. 2020)."""

from collections.abc import Iterator

from torch import Tensor

from assay.errors import InputError
from assay.monitors.metadata import Metadata
from assay.monitors.monitor import Monitor
from assay.monitors.parts.exponentials import log_sum_exp
from assay.monitors.parts.free_energy import with_energies
from assay.monitors.parts.gathered import Gathered
from assay.trace import Trace


class Energy(Monitor):
    """s(x) = E(x; f) = -T log sum_k exp(f_k(x) / T), Eq. 4 of Liu et al.

    >>> import torch
    >>> trace = Trace(torch.tensor([[0.0, 0.0], [5000.0, 0.0]]))
    >>> Energy().fit(trace).score(trace).tolist()
    [-0.6931471805599453, -5000.0]
    """

    metadata = Metadata(score="-T log Σ exp(f / T)", paper="Liu et al.", year=2020)

    def __init__(self, *, temperature: float = 1.0) -> None:
        if not temperature > 0:
            raise InputError(f"expected a positive temperature, got {temperature}")
        self.temperature = temperature

    def _gather(self, traces: Iterator[Trace]) -> dict[str, Gathered]:
        return super()._gather(with_energies(traces, "Energy"))

    def _score(self, trace: Trace) -> Tensor:
        return -self.temperature * log_sum_exp(trace.logits, self.temperature)
