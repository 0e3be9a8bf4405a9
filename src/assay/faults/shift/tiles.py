"""Planes of numbers transformed block by block, without taking them apart."""

import math

import torch
from torch import Tensor

WIDE = 20
"""The width at which products with a small matrix are fastest: narrower ones starve, wider ones waste."""


def padded(images: Tensor, multiple: int) -> Tensor:
    """(n, C, H, W) with the last row and column repeated up to a multiple of the block."""
    height, width = images.shape[-2:]
    more, wider = -height % multiple, -width % multiple
    if not more and not wider:
        return images
    result = images.new_empty(*images.shape[:2], height + more, width + wider)
    result[..., :height, :width] = images
    result[..., :height, width:] = images[..., -1:]
    result[..., height:, :] = result[..., height - 1 : height, :]
    return result


def transformed(planes: Tensor, down: Tensor, wide: Tensor) -> Tensor:
    """`down` (a, b) times every b rows, times `wide` (c, d) for every c columns: (..., H a/b, W d/c).

    Both are products of the planes as they lie in memory; H must be a multiple of b and W of c.
    """
    *outer, height, width = planes.shape
    rows = down @ planes.reshape(-1, down.shape[1], width)
    columns = rows.view(-1, wide.shape[0]) @ wide
    return columns.view(*outer, height * down.shape[0] // down.shape[1], -1)


def widened(across: Tensor, width: int) -> Tensor:
    """The matrix repeated along a diagonal to about WIDE columns; `width` is a multiple of its rows."""
    groups = width // across.shape[0]
    divisors = [count for count in range(1, min(groups, WIDE) + 1) if groups % count == 0]
    copies = min(divisors, key=lambda count: abs(math.log(count * min(across.shape) / WIDE)))
    return torch.kron(torch.eye(copies, dtype=across.dtype), across.contiguous())
