"""From a module and data to a Trace. Hooks, devices and `no_grad` are used nowhere else."""

from assay.network.inputs import (
    all_finite,
    in_single_precision,
    length,
    perturbable,
    replaced,
    rows,
    zeros_of,
)
from assay.network.network import Network

__all__ = [
    "Network",
    "all_finite",
    "in_single_precision",
    "length",
    "perturbable",
    "replaced",
    "rows",
    "zeros_of",
]
