"""Modules with weights in half precision, in which runtimes for the CPU compute slowly or not at all."""

from copy import deepcopy

from torch import nn

from assay.errors import InputError
from assay.network.inputs import HALF


def module_in_single_precision(module: nn.Module) -> nn.Module | None:
    """A copy with its weights in single precision; None if no weight is in half."""
    if not any(tensor.dtype in HALF for tensor in (*module.parameters(), *module.buffers())):
        return None
    try:
        return deepcopy(module).float()
    except (RuntimeError, TypeError) as error:
        raise InputError(
            f"expected a module that can be copied to single precision, got {type(module).__name__} "
            f"({error}); pass assay.Network(module.float())"
        ) from error
