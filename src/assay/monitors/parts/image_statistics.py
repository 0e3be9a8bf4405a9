"""A few cheap statistics of an image of any size, grey or in colour."""

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from assay.monitors.parts.row_blocks import row_blocks
from assay.network.graph import under_tracer

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
    return torch.cat([_statistics(block.double()) for block in row_blocks(images, _ROWS)])


def _statistics(images: Tensor) -> Tensor:
    planes = images.flatten(1, -3) if images.ndim > 3 else images[:, None]
    rows = planes.flatten(1)
    across, down = _steps(planes, -1), _steps(planes, -2)
    bends = _second_differences(planes, across, down)
    sizes = bends.abs()
    level, bend = _mean(rows), _mean(sizes)
    spread = (_mean(rows.square()) - level.square()).clamp(min=0).sqrt()
    columns = [
        level,
        spread,
        bend,
        _mean(bends.square()).sqrt(),
        sizes.flatten(1).amax(dim=1),
        _mean(across.abs()),
        _mean(down.abs()),
        rows.amin(dim=1),
        rows.amax(dim=1),
        _mean(_halved(bends).abs()),
        *torch.stack([spread, bend]).clamp(min=_LEAST).log(),
    ]
    if planes.shape[1] > 1:
        columns += [_mean(_steps(part, 1).abs()) for part in (planes, bends)]
        columns += planes.mean(dim=(2, 3)).unbind(dim=1)
    return torch.stack(columns, dim=1)


def _steps(maps: Tensor, axis: int) -> Tensor:
    """Differences between neighbours; none along an axis of length one."""
    count = maps.shape[axis] - 1
    return maps.narrow(axis, 1, count) - maps.narrow(axis, 0, count)


def _second_differences(planes: Tensor, across: Tensor, down: Tensor) -> Tensor:
    """The Laplacian inside the image; along one axis where the other is too short."""
    height, width = planes.shape[-2:]
    if height > 2 and width > 2:
        return _steps(across.narrow(-2, 1, height - 2), -1) + _steps(down.narrow(-1, 1, width - 2), -2)
    if width > 2:
        return _steps(across, -1)
    return _steps(down, -2) if height > 2 else torch.zeros_like(planes)


def _halved(maps: Tensor) -> Tensor:
    """Means over squares of two by two; the maps themselves where they are thinner than that."""
    if min(maps.shape[-2:]) < 2:
        return maps
    if not under_tracer():
        return avg_pool2d(maps, 2)
    # Runtimes of ONNX pool in single precision only.
    height, width = (size // 2 * 2 for size in maps.shape[-2:])
    upper, lower = maps[..., 0:height:2, :width], maps[..., 1:height:2, :width]
    return (upper[..., ::2] + upper[..., 1::2] + lower[..., ::2] + lower[..., 1::2]) / 4


def _mean(values: Tensor) -> Tensor:
    """Row by row; zero where there is none, as of steps along an axis of length one."""
    rows = values.flatten(1)
    return rows.sum(dim=1) / max(1, rows.shape[1])
