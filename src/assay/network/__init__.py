"""From a module and data to a Trace. Nothing outside this room holds hooks, devices or `no_grad`."""

from assay.network.inputs import all_finite, length, perturbable, replaced, rows, zeros_of
from assay.network.network import Network

__all__ = ["Network", "all_finite", "length", "perturbable", "replaced", "rows", "zeros_of"]
