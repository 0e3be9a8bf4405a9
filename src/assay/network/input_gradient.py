"""The gradient with respect to the inputs of a network, or why there is none."""

import torch
from torch import Tensor

from assay.errors import GradientError


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
