"""From a module and data to a Trace. Hooks, devices and `no_grad` are used nowhere else."""

from assay.network.inputs import (
    ENCODED,
    KeepInputs,
    all_finite,
    in_single_precision,
    length,
    perturbable,
    replaced,
    rows,
    zeros_of,
)
from assay.network.network import Network
from assay.network.prediction_rows import FunctionRows, PixelRows

__all__ = [
    "ENCODED",
    "FunctionRows",
    "KeepInputs",
    "Network",
    "PixelRows",
    "all_finite",
    "in_single_precision",
    "length",
    "perturbable",
    "replaced",
    "rows",
    "zeros_of",
]
