"""Rows of inputs, whether a tensor, a dict of tensors or a list of texts: count, select, batch, perturb."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TypeAlias, TypeVar, cast

import torch
from torch import Tensor

from assay.errors import InputError
from assay.trace import Inputs

SomeInputs = TypeVar("SomeInputs", bound=Inputs | list[str])

ENCODED: Literal["encoded"] = "encoded"
KeepInputs: TypeAlias = bool | Literal["encoded"]
"""Whether a Trace keeps its inputs: embedded, or texts as token ids, without their embeddings."""

Form: TypeAlias = dict[str, tuple[tuple[int, ...], torch.dtype]]
"""Shape and type of one row, by the name of the input; the name is "" where inputs are one tensor."""


HALF = (torch.float16, torch.bfloat16)
"""Precisions in which runtimes for the CPU compute slowly or not at all."""


def form_of(inputs: Inputs) -> Form:
    """The form of these inputs."""
    named = {"": inputs} if isinstance(inputs, Tensor) else inputs
    return {name: (tuple(tensor.shape[1:]), tensor.dtype) for name, tensor in named.items()}


def described(form: Form) -> str:
    """For messages, such as float32 (rows, 3, 28, 28)."""

    def text(shape: tuple[int, ...], dtype: torch.dtype) -> str:
        return f"{str(dtype).removeprefix('torch.')} ({', '.join(['rows', *map(str, shape)])})"

    return ", ".join(f"{name}: {text(*one)}" if name else text(*one) for name, one in form.items())


def zeros_of(form: Form, count: int) -> Inputs:
    """`count` rows of zeros in that form."""
    tensors = {name: torch.zeros(count, *shape, dtype=dtype) for name, (shape, dtype) in form.items()}
    return tensors.get("", tensors)


def length(inputs: Inputs | list[str]) -> int:
    """The number of rows.

    >>> length(["a", "b"]), length({"input_ids": torch.zeros(3, 8)})
    (2, 3)
    """
    return len(next(iter(inputs.values()))) if isinstance(inputs, Mapping) else len(inputs)


def rows(inputs: SomeInputs, part: slice | Tensor) -> SomeInputs:
    """The rows of a slice, an index tensor or a mask, in the form the inputs have.

    >>> rows(["a", "b", "c"], torch.tensor([2, 0])), rows(["a", "b", "c"], torch.tensor([True, False, True]))
    (['c', 'a'], ['a', 'c'])
    """
    if isinstance(inputs, list):
        selected: Any = [inputs[row] for row in torch.arange(len(inputs))[part].tolist()]
    else:
        selected = each(inputs, lambda tensor: tensor[part])
    return cast(SomeInputs, selected)


def batches(inputs: SomeInputs, size: int) -> Iterator[SomeInputs]:
    """All rows in order, at most `size` at a time.

    >>> list(batches(["a", "b", "c"], 2))
    [['a', 'b'], ['c']]
    """
    for start in range(0, length(inputs), size):
        yield rows(inputs, slice(start, start + size))


def each(inputs: Inputs, change: Callable[[Tensor], Tensor]) -> Inputs:
    """`change` applied to every tensor."""
    if isinstance(inputs, Tensor):
        return change(inputs)
    return {name: change(tensor) for name, tensor in inputs.items()}


def perturbable(inputs: Inputs) -> Tensor:
    """The tensor to perturb: the inputs themselves, or the one floating-point tensor of a dict."""
    if isinstance(inputs, Mapping):
        return inputs[_floating_name(inputs)]
    if not inputs.is_floating_point():
        raise InputError(
            f"expected floating-point inputs to perturb, got {shapes(inputs)}; convert them first"
        )
    return inputs


def replaced(inputs: Inputs, moved: Tensor) -> Inputs:
    """The inputs with `moved` in place of their perturbable tensor."""
    return moved if isinstance(inputs, Tensor) else {**inputs, _floating_name(inputs): moved}


def all_finite(inputs: Inputs) -> bool:
    """Whether no tensor contains NaN or infinity.

    A finite sum proves it in one pass; only if the sum is not finite is each number checked.
    """
    if not isinstance(inputs, Tensor):
        return all(map(all_finite, inputs.values()))
    if not inputs.is_floating_point():
        return True
    return math.isfinite(inputs.sum().item()) or bool(torch.isfinite(inputs).all())


def scaled(inputs: Inputs, scale: float) -> Inputs:
    """Inputs of type uint8 divided by `scale`, in single precision; others as they are."""
    return each(inputs, lambda tensor: tensor.float() / scale if tensor.dtype == torch.uint8 else tensor)


def in_single_precision(inputs: Inputs) -> Inputs:
    """The inputs, those in half precision in single."""
    return each(inputs, lambda tensor: tensor.float() if tensor.dtype in HALF else tensor)


def shapes(inputs: Inputs) -> str:
    """Type and shape of every tensor, for error messages."""
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
