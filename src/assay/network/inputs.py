"""What every kind of input owes: rows, a length, and the one tensor that gradients move."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, overload

import torch
from torch import Tensor

from assay.errors import InputError
from assay.trace import Inputs

Form: TypeAlias = dict[str, tuple[tuple[int, ...], torch.dtype]]
"""Shape of one row and type, by the input's name; the name "" stands for inputs in one tensor."""


def form_of(inputs: Inputs) -> Form:
    named = {"": inputs} if isinstance(inputs, Tensor) else inputs
    return {name: (tuple(tensor.shape[1:]), tensor.dtype) for name, tensor in named.items()}


def zeros_of(form: Form, count: int) -> Inputs:
    """So many rows of zeros in that form."""
    made = {name: torch.zeros(count, *shape, dtype=dtype) for name, (shape, dtype) in form.items()}
    return made.get("", made)


def length(inputs: Inputs | Sequence[str]) -> int:
    """Number of rows, of tensors or of texts."""
    return len(next(iter(inputs.values()))) if isinstance(inputs, Mapping) else len(inputs)


@overload
def rows(inputs: Inputs, part: slice | Tensor) -> Inputs: ...
@overload
def rows(inputs: Sequence[str], part: slice | Tensor) -> Sequence[str]: ...


def rows(inputs: Inputs | Sequence[str], part: slice | Tensor) -> Inputs | Sequence[str]:
    """The same rows of every tensor, or those of texts; a slice, or their numbers."""
    if isinstance(inputs, Tensor | Mapping):
        return each(inputs, lambda tensor: tensor[part])
    return inputs[part] if isinstance(part, slice) else [inputs[row] for row in part.tolist()]


def each(inputs: Inputs, change: Callable[[Tensor], Tensor]) -> Inputs:
    """`change` applied to every tensor."""
    if isinstance(inputs, Tensor):
        return change(inputs)
    return {name: change(tensor) for name, tensor in inputs.items()}


def perturbable(inputs: Inputs) -> Tensor:
    """The tensor that gradients move: the input itself, or the one floating-point entry of a dict."""
    if isinstance(inputs, Mapping):
        return inputs[_floating_name(inputs)]
    if not inputs.is_floating_point():
        raise InputError(
            f"expected floating-point inputs to perturb, got {shapes(inputs)}; convert them first"
        )
    return inputs


def replaced(inputs: Inputs, moved: Tensor) -> Inputs:
    """The inputs with their perturbable tensor exchanged for `moved`."""
    return moved if isinstance(inputs, Tensor) else {**inputs, _floating_name(inputs): moved}


def all_finite(inputs: Inputs) -> bool:
    """Whether there is neither NaN nor infinity in any tensor.

    A finite sum says so in one pass; only where it is not, or has overflowed, each number is looked at.
    """
    tensors = [inputs] if isinstance(inputs, Tensor) else list(inputs.values())
    return all(
        math.isfinite(tensor.sum().item()) or bool(torch.isfinite(tensor).all())
        for tensor in tensors
        if tensor.is_floating_point()
    )


def shapes(inputs: Inputs) -> str:
    """For messages: dtype and shape of every tensor."""
    if isinstance(inputs, Tensor):
        return f"{inputs.dtype} {tuple(inputs.shape)}"
    return ", ".join(f"{name}: {shapes(tensor)}" for name, tensor in inputs.items())


def _floating_name(inputs: Mapping[str, Tensor]) -> str:
    names = [name for name, tensor in inputs.items() if tensor.is_floating_point()]
    if len(names) != 1:
        raise InputError(
            f"expected inputs with one floating-point tensor to perturb, got {names or 'none'} among "
            f"{sorted(inputs)}; pass embeddings instead of token ids, and masks as integers"
        )
    return names[0]
