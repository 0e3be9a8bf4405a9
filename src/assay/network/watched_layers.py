"""Layers by name: which a module has, hearing them in a forward pass, and what to say if one is silent."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from assay.errors import InputError, shortened
from assay.network.compiled import as_written
from assay.network.graph_modules import GraphTaps, is_graph, watchable
from assay.network.taps import PENULTIMATE, Row, Taps, evaluating, hooked, modules_of

_SUGGESTED = 3
"""Layers that a message names to choose from."""


def layer_names(module: nn.Module) -> list[str]:
    """The layers that can be watched by name."""
    if is_graph(module):
        return watchable(module)
    return [name for name, _ in module.named_modules() if name]


def check_layers(module: nn.Module, layers: Sequence[str]) -> None:
    """An error that names the layers there are, if one of these is not among them."""
    known = layer_names(module)
    unknown = [name for name in layers if name != PENULTIMATE and name not in known]
    if unknown and isinstance(module, torch.jit.ScriptModule):
        raise InputError(
            f"expected layers='penultimate' of a TorchScript module, which has no other layers to watch, got "
            f"{unknown}; to watch others, pass the module it was made from"
        )
    if unknown:
        raise InputError(
            f"expected layers of {type(module).__name__}, got {unknown}; "
            f"choose from {shortened([PENULTIMATE, *known])}"
        )


@contextmanager
def listening(
    module: nn.Module, layers: Sequence[str], parts: Sequence[nn.Module], classes: int | None, row: Row
) -> Iterator[Taps]:
    """Taps on these layers for a forward pass inside the context."""
    if is_graph(module):
        yield GraphTaps(module, layers, row)
    else:
        with hooked(module, layers, parts, classes, row) as taps:
            yield taps


def input_advice(module: nn.Module) -> str:
    """What to do about inputs that a module does not take."""
    advice = "pass inputs of the shape it was trained on"
    if is_graph(module) and not isinstance(module, torch.jit.ScriptModule):
        return f"{advice}, or export it with dynamic_shapes= that leave the number of rows free"
    return advice


def silence(name: str, module: nn.Module, run: Callable[[], Any]) -> InputError:
    """The error for a layer that was not heard; `run` is the forward pass."""
    author = type(module).__name__
    if name != PENULTIMATE:
        return InputError(
            f"expected layer {name!r} to run in the forward pass of {author}, but it did not; "
            f"choose layers from {shortened(layer_names(module))}"
        )
    if isinstance(module, torch.jit.ScriptModule):
        advice = "pass the module it was made from and the layer to watch, or layers=() for none"
    else:
        names = watchable(module)[-_SUGGESTED:] if is_graph(module) else _last_to_run(module, run)
        choices = " or ".join(f"layers={name!r}" for name in names) or "layers=() for none"
        advice = f"pass the layer to watch, such as {choices}"
    return InputError(
        f"expected a Linear layer to run in the forward pass of {author}, or a convolution with one channel "
        f"per class after it, to make the logits, but none did; {advice}"
    )


def _last_to_run(module: nn.Module, run: Callable[[], Any]) -> list[str]:
    """The names of the layers that ran last, the very last of them first, without those that only reshape."""
    ran: dict[str, Any] = {}

    def heard(name: str) -> Any:
        def hook(_: nn.Module, __: Any, output: Any) -> None:
            ran.pop(name, None)
            ran[name] = output

        return hook

    parts = modules_of(module)
    with ExitStack() as stack, torch.no_grad(), evaluating(parts), as_written(parts):
        for name, part in module.named_modules():
            if name and not part._modules and not isinstance(part, nn.Flatten | nn.Identity | nn.Dropout):
                stack.callback(part.register_forward_hook(heard(name)).remove)
        run()
    usable = [name for name, output in ran.items() if isinstance(output, Tensor) and output.ndim > 1]
    return usable[::-1][:_SUGGESTED]
