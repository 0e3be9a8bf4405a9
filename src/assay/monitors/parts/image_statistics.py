"""A few cheap statistics of an image of any size, grey or in colour."""

import torch
from torch import Tensor

from assay.monitors.parts.row_blocks import row_blocks

_ROWS = 32  # looked at together: intermediate results stay in cache


def image_statistics(images: Tensor) -> Tensor:
    """(N, 9), or (N, 10 + C) for C > 1 channels, of inputs (N, ..., H, W); all axes between are channels.

    Level and spread of the values; mean size, root mean square and largest size of the Laplacian (noise,
    blur, single broken pixels); mean step between neighbours along each axis (lines, motion); the least and
    the largest value; of several channels, how far they differ and the level of each (colour). In double
    precision: the same, whatever the batch.
    """
    return torch.cat([_statistics(block.double()) for block in row_blocks(images, _ROWS)])


def _statistics(images: Tensor) -> Tensor:
    planes = images.flatten(1, -3) if images.ndim > 3 else images[:, None]
    rows = planes.flatten(1)
    across, down = planes[..., 1:] - planes[..., :-1], planes[..., 1:, :] - planes[..., :-1, :]
    bends = _second_differences(planes, across, down).flatten(1).abs()
    level = rows.mean(dim=1)
    columns = [
        level,
        (rows.square().mean(dim=1) - level.square()).clamp(min=0).sqrt(),
        bends.mean(dim=1),
        bends.square().mean(dim=1).sqrt(),
        bends.amax(dim=1),
        _mean_size(across),
        _mean_size(down),
        rows.amin(dim=1),
        rows.amax(dim=1),
    ]
    if planes.shape[1] == 1:
        return torch.stack(columns, dim=1)
    variance = planes.square().mean(dim=1) - planes.mean(dim=1).square()
    columns.append(variance.clamp(min=0).sqrt().mean(dim=(1, 2)))
    return torch.cat([torch.stack(columns, dim=1), planes.mean(dim=(2, 3))], dim=1)


def _second_differences(planes: Tensor, across: Tensor, down: Tensor) -> Tensor:
    """The Laplacian inside the image; along one axis where the other is too short."""
    height, width = planes.shape[-2:]
    if height > 2 and width > 2:
        inside = across[..., 1:-1, 1:] - across[..., 1:-1, :-1]
        return inside + (down[..., 1:, 1:-1] - down[..., :-1, 1:-1])
    if width > 2:
        return across[..., 1:] - across[..., :-1]
    return down[..., 1:, :] - down[..., :-1, :] if height > 2 else torch.zeros_like(planes)


def _mean_size(steps: Tensor) -> Tensor:
    """The mean size of the steps; zero along an axis of length one, which has none."""
    rows = steps.abs().flatten(1)
    return rows.sum(dim=1) / max(1, rows.shape[1])
