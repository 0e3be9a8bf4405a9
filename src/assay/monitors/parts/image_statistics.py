"""A few cheap statistics of an image of any size, grey or in colour."""

import math
from typing import Any

import torch
from torch import Tensor

from assay.monitors.parts.formula import Array, evaluated
from assay.monitors.parts.row_blocks import row_blocks

_ROWS = 32  # looked at together: intermediate results stay in cache
_LEAST = 1e-3  # of what a logarithm is taken of: a quarter of a grey value in [0, 1]


def image_statistics(images: Tensor) -> Tensor:
    """(N, 12), or (N, 14 + C) for C > 1 channels, of inputs (N, ..., H, W); all axes between are channels.

    Level and spread of the values; mean size, root mean square and largest size of the Laplacian (noise,
    blur, single broken pixels), and its mean size once averaged over squares of four (blur leaves more of it
    than noise does); mean step between neighbours along each axis (lines, motion); the least and the largest
    value; the logarithms of the spread and of the Laplacian's size, in which what fades by a factor moves
    along a line (fog, contrast). Of several channels also the mean step from one to the next (colour), the
    same of the Laplacian (in nature edges are those of all channels; noise and attacks are not), and the
    level of each. In double precision: the same, whatever the batch.
    """
    return torch.cat([evaluated(_statistics, block.double()) for block in row_blocks(images, _ROWS)])


def _statistics(xp: Any, images: Array) -> Array:
    height, width = images.shape[-2:]
    planes = images.reshape(images.shape[0], math.prod(images.shape[1:-2]), height, width)
    across, down = _steps(planes, -1), _steps(planes, -2)
    bends = _second_differences(xp, planes, across, down)
    sizes = xp.abs(bends)
    level, bend = _mean(planes), _mean(sizes)
    spread = xp.sqrt(_at_least(xp, _mean(planes * planes) - level * level, 0.0))
    columns = [
        level,
        spread,
        bend,
        xp.sqrt(_mean(bends * bends)),
        xp.amax(_flat(sizes), 1),
        _mean(xp.abs(across)),
        _mean(xp.abs(down)),
        xp.amin(_flat(planes), 1),
        xp.amax(_flat(planes), 1),
        _mean(xp.abs(_halved(bends))),
        *(xp.log(_at_least(xp, part, _LEAST)) for part in (spread, bend)),
    ]
    if planes.shape[1] > 1:
        columns += [_mean(xp.abs(_steps(part, 1))) for part in (planes, bends)]
        columns += list(xp.sum(planes, (2, 3)).T / (height * width))
    return xp.concatenate(columns).reshape(len(columns), images.shape[0]).T


def _steps(maps: Array, axis: int) -> Array:
    """Differences between neighbours; none along an axis of length one."""
    before, after = [slice(None)] * 4, [slice(None)] * 4
    before[axis], after[axis] = slice(None, -1), slice(1, None)
    return maps[tuple(after)] - maps[tuple(before)]


def _second_differences(xp: Any, planes: Array, across: Array, down: Array) -> Array:
    """The Laplacian inside the image; along one axis where the other is too short."""
    height, width = planes.shape[-2:]
    if height > 2 and width > 2:
        return _steps(across[..., 1:-1, :], -1) + _steps(down[..., 1:-1], -2)
    if width > 2:
        return _steps(across, -1)
    return _steps(down, -2) if height > 2 else xp.zeros_like(planes)


def _halved(maps: Array) -> Array:
    """Means over squares of two by two; the maps themselves where they are thinner than that."""
    height, width = (size // 2 * 2 for size in maps.shape[-2:])
    if not height or not width:
        return maps
    pairs = maps[..., 0:height:2, :width] + maps[..., 1:height:2, :width]
    return (pairs[..., ::2] + pairs[..., 1::2]) / 4


def _mean(maps: Array) -> Array:
    """Image by image; zero where there is nothing, as of steps along an axis of length one."""
    return _flat(maps).sum(1) / max(1, maps.shape[1] * maps.shape[2] * maps.shape[3])


def _flat(maps: Array) -> Array:
    """A row per image: one axis is summed up in half the time of three."""
    return maps.reshape(maps.shape[0], maps.shape[1] * maps.shape[2] * maps.shape[3])


def _at_least(xp: Any, values: Array, low: float) -> Array:
    return xp.where(values < low, low, values)  # NaN stays
