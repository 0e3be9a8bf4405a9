"""The gradient with respect to the inputs of a network, or why there is none."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from assay.errors import GradientError, InputError
from assay.network.buffers import RowBuffer
from assay.network.inputs import perturbable, replaced
from assay.trace import Inputs, Trace

if TYPE_CHECKING:
    from assay.network.network import Network


def gradients_of(
    network: "Network", inputs: Inputs, objective: Callable[[Trace], Tensor], labels: Any
) -> Tensor:
    """What `Network.gradient` promises."""
    gradients = RowBuffer()
    batches = network.batches(inputs if labels is None else (inputs, labels))
    if batches.ignored:
        raise InputError(
            f"expected a label for every input that is to be moved, got {batches.ignored} to be ignored; "
            "leave those inputs out"
        )
    for raw, known in batches:
        part = network.embed(raw)
        moving = perturbable(part).detach().requires_grad_()
        with torch.enable_grad():
            found = network._batch_rows(replaced(part, moving), network.layers)
            found = found.labelled(known, network.rows, network.ignore_index)
            total = objective(found.on_cpu()).sum()
            gradients.add(input_gradient(total, moving, len(found.logits), network._name))
    return gradients.tensor()


def input_gradient(total: Tensor, moving: Tensor, rows: int, owner: str) -> Tensor:
    """d total / d moving, where `total` is a sum over `rows` predictions; zero if there are none."""
    found: tuple[Tensor | None, ...] = (None,)
    if total.requires_grad:
        found = torch.autograd.grad(total, moving, allow_unused=True)
    if found[0] is not None:
        return found[0]
    if rows:
        raise GradientError(
            f"expected a network with gradients, got {owner}, through which none pass, as with quantised "
            "layers and rows that are detached; use the module before quantisation, or a method that needs "
            "only logits and features"
        )
    return torch.zeros_like(moving)
