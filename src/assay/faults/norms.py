"""Unit vectors and balls of the l-inf, l2 and l1 norm, row by row."""

import math
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor

from assay.errors import InputError

Norm: TypeAlias = Literal["linf", "l2", "l1"]

L1_SHARE = 0.01
"""The share of coordinates an l1 step moves. Steepest ascent under l1 moves a single one, which in an image
saturates at once; moving the top few evenly is the sparse step of Tramer and Boneh 2019 (SLIDE)."""


def check_norm(norm: str) -> None:
    if norm not in get_args(Norm):
        raise InputError(f"expected norm to be one of {list(get_args(Norm))}, got {norm!r}")


def norms(rows: Tensor, norm: Norm) -> Tensor:
    """(N,) norms of the rows, in double precision."""
    order = {"linf": math.inf, "l2": 2, "l1": 1}[norm]
    lengths: Tensor = torch.linalg.vector_norm(rows.flatten(1).double(), ord=order, dim=1)
    return lengths


def steepest(gradient: Tensor, norm: Norm) -> Tensor:
    """Directions of norm 1 (0 where the gradient is 0) along which the objective rises most.

    l-inf: the sign (Goodfellow et al. 2015). l2: the gradient over its length. l1: the signs of the largest
    L1_SHARE of coordinates, evenly; ties take the first.
    """
    flat = gradient.flatten(1)
    if norm == "linf":
        unit = flat.sign()
    elif norm == "l2":
        # Scaled by the largest entry first: squares of tiny gradients would underflow to zero.
        scaled = flat / flat.abs().amax(dim=1, keepdim=True).clamp(min=torch.finfo(flat.dtype).tiny)
        unit = scaled / torch.linalg.vector_norm(scaled, dim=1, keepdim=True).clamp(min=0.5)
    else:
        largest = flat.abs().topk(support(flat.shape[1]), dim=1).indices
        signs = flat.gather(1, largest).sign()
        share = 1 / signs.abs().sum(dim=1, keepdim=True).clamp(min=1)
        unit = torch.zeros_like(flat).scatter_(1, largest, signs * share)
    return unit.view_as(gradient)


def random_signs(like: Tensor, norm: Norm, seed: int) -> Tensor:
    """Directions of norm 1 with random signs; l1 moves a random L1_SHARE of coordinates."""
    generator = torch.Generator().manual_seed(seed)
    flat = like.flatten(1)
    signs = torch.randint(0, 2, flat.shape, generator=generator).to(flat) * 2 - 1
    if norm == "l2":
        signs /= math.sqrt(flat.shape[1])
    elif norm == "l1":
        count = support(flat.shape[1])
        chosen = torch.rand(flat.shape, generator=generator).topk(count, dim=1).indices.to(flat.device)
        signs = torch.zeros_like(flat).scatter_(1, chosen, signs.gather(1, chosen) / count)
    return signs.view_as(like)


def inside(like: Tensor, epsilon: float, norm: Norm, generator: torch.Generator) -> Tensor:
    """Uniform draws from the balls of radius epsilon, one per row."""
    shape, size = like.flatten(1).shape, like[0].numel()
    if norm == "linf":
        flat = torch.rand(shape, generator=generator) * 2 - 1
    else:
        # Normal (l2) or Laplace (l1) draws over their norm are uniform on the sphere; times U^(1/d), inside.
        flat = torch.randn(shape, generator=generator)
        if norm == "l1":
            flat = flat.sign() * -torch.rand(shape, generator=generator).clamp(min=1e-30).log()
        radius = torch.rand(shape[0], generator=generator) ** (1 / size)
        flat = flat * (radius / norms(flat, norm).float())[:, None]
    return (epsilon * flat).to(like).view_as(like)


def projected(delta: Tensor, epsilon: float, norm: Norm) -> Tensor:
    """The nearest points of the balls of radius epsilon; l1 by sorting (Duchi et al. 2008)."""
    if norm == "linf":
        return delta.clamp(-epsilon, epsilon)
    flat = delta.flatten(1)
    if norm == "l2":
        length = torch.linalg.vector_norm(flat, dim=1, keepdim=True)
        flat = flat * (epsilon / length.clamp(min=epsilon))
    else:
        size = flat.abs()
        ordered = size.sort(dim=1, descending=True).values
        excess = ordered.cumsum(dim=1) - epsilon
        rank = torch.arange(1, flat.shape[1] + 1, device=flat.device)
        last = (ordered * rank > excess).sum(dim=1, keepdim=True).clamp(min=1)
        cut = (excess.gather(1, last - 1) / last).clamp(min=0)
        flat = flat.sign() * (size - cut).clamp(min=0)
    return flat.view_as(delta)


def support(size: int) -> int:
    """How many of `size` coordinates an l1 step moves."""
    return max(1, round(L1_SHARE * size))
