"""The class scores among what a network returns: a tensor, or one of the parts of a tuple, dict or object."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from torch import Tensor

from assay.errors import InputError

Choice: TypeAlias = str | int | None
"""The name or the position of an output; None: the one called "logits", or the only one that can be meant."""

USUAL = "logits"


def chosen_output(output: Any, asked: Choice, rows: int, owner: str) -> Tensor:
    """The tensor with the class scores; an error that lists the candidates where several can be meant."""
    if isinstance(output, Tensor) and asked is None:
        return output
    name = USUAL if asked is None else asked
    if isinstance(found := _part(output, name), Tensor):
        return found
    tensors = {name: part for name, part in _parts(output).items() if isinstance(part, Tensor)}
    if asked is not None:
        raise InputError(
            f"expected an output {asked!r} of {owner}, got {listed(tensors) or 'none'}; choose one of these"
        )
    fitting = {name: tensor for name, tensor in tensors.items() if _may_be_scores(tensor, rows)}
    found = fitting or tensors
    if len(found) == 1:
        return next(iter(found.values()))
    if not found:
        raise InputError(
            f"expected a tensor from {owner}, got {type(output).__name__}; wrap the module so that it "
            "returns one row of class scores per input"
        )
    raise InputError(
        f"expected one output with class scores from {owner}, got {listed(found)}; choose one with "
        f"output={next(iter(found))!r}"
    )


def listed(tensors: Mapping[Any, Any]) -> str:
    """Names and shapes, for messages."""
    return ", ".join(f"{name!r} {tuple(tensor.shape)}" for name, tensor in tensors.items())


def _part(output: Any, name: str | int) -> Any:
    """The part with this name or at this place; None if there is none."""
    parts = _parts(output)
    if name in parts:
        return parts[name]
    if isinstance(name, str):
        # Of an object that computes its parts; the attributes of a tensor are no outputs.
        return None if isinstance(output, Tensor) else getattr(output, name, None)
    return list(parts.values())[name] if -len(parts) <= name < len(parts) else None


def _parts(output: Any) -> dict[str | int, Any]:
    """What an output consists of, by name, or by position where there are no names."""
    if isinstance(output, Mapping):
        return dict(output)
    if isinstance(output, tuple) and hasattr(output, "_fields"):
        return dict(zip(output._fields, output, strict=True))
    if isinstance(output, tuple | list):
        return dict(enumerate(output))
    if isinstance(output, Tensor):
        return {0: output}
    return dict(vars(output)) if hasattr(output, "__dict__") else {}


def _may_be_scores(tensor: Tensor, rows: int) -> bool:
    return tensor.is_floating_point() and tensor.ndim in (1, 2) and len(tensor) == rows
