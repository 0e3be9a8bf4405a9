"""From a module and data to a Trace. Hooks, devices and `no_grad` are used nowhere else."""

from assay.network.inputs import all_finite, length, perturbable, replaced, rows, zeros_of
from assay.network.network import ENCODED, Network

__all__ = ["ENCODED", "Network", "all_finite", "length", "perturbable", "replaced", "rows", "zeros_of"]
