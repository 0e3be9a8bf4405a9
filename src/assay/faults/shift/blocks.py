"""Planes of numbers transformed block by block, without taking them apart."""

import torch
from torch import Tensor
from torch.nn.functional import pad

WIDE = 16
"""Columns below which a matrix product is too narrow to be fast."""


def padded(images: Tensor, multiple: int) -> Tensor:
    """(n, C, H, W) with the last row and column repeated up to a multiple of the block."""
    height, width = images.shape[-2:]
    if height % multiple == 0 and width % multiple == 0:
        return images
    return pad(images, [0, -width % multiple, 0, -height % multiple], mode="replicate")


def transformed(planes: Tensor, down: Tensor, across: Tensor) -> Tensor:
    """`down` (a, b) times every b rows, times `across` (c, d) for every c columns: (..., H a/b, W d/c).

    Both are products of the planes as they lie in memory; `across` should be `widened`.
    """
    *outer, height, width = planes.shape
    columns = planes.reshape(-1, across.shape[0]) @ across.to(planes)
    rows = down.to(planes) @ columns.view(-1, down.shape[1], width * across.shape[1] // across.shape[0])
    return rows.view(*outer, height * down.shape[0] // down.shape[1], -1)


def widened(across: Tensor) -> Tensor:
    """The matrix repeated along a diagonal until it takes at least WIDE columns."""
    return torch.kron(torch.eye(-(-WIDE // across.shape[0])), across.contiguous())
