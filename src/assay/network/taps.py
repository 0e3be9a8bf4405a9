"""Hooks on the layers of a module during one forward pass: their outputs, evaluation mode, dropout."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from threading import Lock, get_ident
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from assay.errors import InputError
from assay.network.feature_pooling import channels_first
from assay.network.heads import HeadInputs, may_make_logits

PENULTIMATE = "penultimate"

NO_KEYWORDS: Mapping[str, Any] = MappingProxyType({})
"""For a hook that another thread calls while torch adds or removes it, and does not yet know of keywords."""

_switching = Lock()
_evaluating: dict[nn.Module, int] = {}
"""Parts that belong in training mode, and how many threads need them in evaluation mode now."""


Row = Callable[[str, Tensor, bool], Tensor]
"""From the name of a layer, its output, and whether channels come before positions there, to features."""


class Taps:
    """What the watched layers of a module do in one forward pass, which is a call of `run`."""

    def __init__(self, module: nn.Module, row: Row) -> None:
        self.last_inputs = HeadInputs()
        self._module = module
        self._row = row
        self._features: dict[str, Tensor] = {}

    def run(self, *arguments: Any, **named: Any) -> Any:
        return self._module(*arguments, **named)

    def add(self, name: str, output: Any, channels_first: bool) -> None:
        """Read a layer's output as soon as it has run: an activation in place may change it next."""
        tensor = first_tensor(output, name)
        features = self._row(name, tensor, channels_first)
        self._features[name] = features.clone() if features.data_ptr() == tensor.data_ptr() else features

    def features(self, layers: Sequence[str], classes: int) -> dict[str, Tensor]:
        """One row per input of each layer that ran, if `classes` is how many the logits have."""
        if PENULTIMATE in layers and (last := self.last_inputs.of_logits(classes)) is not None:
            self._features[PENULTIMATE] = self._row(PENULTIMATE, *last)
        return {name: self._features[name] for name in layers if name in self._features}


@contextmanager
def hooked(
    module: nn.Module, layers: Sequence[str], parts: Sequence[nn.Module], classes: int | None, row: Row
) -> Iterator[Taps]:
    """Taps that a forward pass inside the context fills, by hooks on the layers.

    Every layer that may make the logits (`heads.may_make_logits`) reports for "penultimate"; the last one
    counts. A layer that runs several times keeps its last output. Hooks are removed afterwards, even after an
    error; a forward pass of another thread is ignored.
    """
    taps, listener = Taps(module, row), get_ident()

    def after(name: str) -> Any:
        def hook(layer: nn.Module, _: Any, output: Any) -> None:
            if get_ident() == listener:
                taps.add(name, output, channels_first(layer))

        return hook

    def before(layer: nn.Module, arguments: tuple[Any, ...], named: Mapping[str, Any] = NO_KEYWORDS) -> None:
        if get_ident() == listener:
            given = first_tensor((*arguments, *named.values()), "the caller of the last layer")
            taps.last_inputs.add(given, getattr(layer, "out_channels", None))

    with ExitStack() as stack:
        for name in layers:
            if name == PENULTIMATE:
                for part in parts:
                    if may_make_logits(part, classes):
                        _remove_at_exit(stack, part.register_forward_pre_hook(before, with_kwargs=True))
            else:
                _remove_at_exit(stack, module.get_submodule(name).register_forward_hook(after(name)))
        yield taps


def modules_of(module: nn.Module) -> list[nn.Module]:
    """The module and all its submodules, each once: `Module.modules()` in a third of the time, which matters
    in a guarded call on a single input."""
    parts = {module: None}
    queue = [module]
    for part in queue:
        for child in part._modules.values():
            if child is not None and child not in parts:
                parts[child] = None
                queue.append(child)
    return queue


@contextmanager
def evaluating(parts: Sequence[nn.Module]) -> Iterator[None]:
    """Every part of a module in evaluation mode; each one's own mode is restored afterwards.

    Any number of threads may be inside at once: a part goes back to training mode only when the last of them
    leaves, so that no thread runs with dropout because another one finished.
    """
    with _switching:
        # What TorchScript froze has no mode.
        switched = [part for part in parts if getattr(part, "training", False) or part in _evaluating]
        for part in switched:
            part.training = False
            _evaluating[part] = _evaluating.get(part, 0) + 1
    try:
        yield
    finally:
        with _switching:
            for part in switched:
                _evaluating[part] -= 1
                if not _evaluating[part]:
                    del _evaluating[part]
                    part.training = True


@contextmanager
def thinned(module: nn.Module, seed: int) -> Iterator[None]:
    """Every dropout layer drops units at its own rate, the same ones for every row of the batch.

    With one mask per forward pass, all rows go through the same thinned network: the result for an input does
    not depend on its batch, and the global random state is not touched. Each run of a layer draws from its
    own generator, so that longer padding in one batch does not change the masks of the tokens before it.
    Forward passes of other threads are not affected.
    """
    runs, thinner = count(), get_ident()

    def drop(layer: Any, _: Any, output: Tensor) -> Tensor:
        if get_ident() != thinner:
            return output
        rate = float(layer.p)
        generator = torch.Generator().manual_seed(seed * 1_000_003 + next(runs))
        keep = torch.rand(output.shape[1:], generator=generator) >= rate
        return output * keep.to(output) / (1 - rate)

    layers = [part for part in module.modules() if isinstance(part, nn.modules.dropout._DropoutNd)]
    if not any(layer.p > 0 for layer in layers):
        raise InputError("expected a module with dropout layers, got none; use another monitor")
    with ExitStack() as stack:
        for layer in layers:
            if layer.p < 1:
                _remove_at_exit(stack, layer.register_forward_hook(drop))
        yield


def first_tensor(output: Any, where: str) -> Tensor:
    """The tensor itself, or the first one in a tuple, list, dict or dataclass."""
    if isinstance(output, Tensor):
        return output
    parts: Any = ()
    if isinstance(output, Mapping):
        parts = output.values()
    elif isinstance(output, tuple | list):
        parts = output
    elif hasattr(output, "__dict__"):
        parts = vars(output).values()
    for part in parts:
        if isinstance(part, Tensor):
            return part
    raise InputError(
        f"expected a tensor from {where}, got {type(output).__name__}; wrap the module so that it does"
    )


def _remove_at_exit(stack: ExitStack, handle: RemovableHandle) -> None:
    stack.callback(handle.remove)
