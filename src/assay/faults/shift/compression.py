"""The loss from storing an image in less space: fewer pixels, or JPEG (Hendrycks and Dietterich 2019)."""

import math
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from assay.faults.shift.tiles import padded, transformed, widened


def pixelate(images: Tensor, severity: int, _: torch.Generator) -> Tensor:
    """Reduced to 60, 43, 40, 30 or 21 % of the side by averaging areas, and enlarged by repetition.

    Published 60, 50, 40, 30 and 25 %. Cells of two or four whole pixels would leave an image that is made of
    such cells, or was enlarged from them, nearer to itself than smaller cells do.
    A share p / q turns every q pixels into p cells, so one small matrix does all rows, another all columns.
    """
    fresh, period = ((3, 5), (3, 7), (2, 5), (3, 10), (3, 14))[severity - 1]
    whole = padded(images, period)
    down, across = _cells(fresh, period, whole.shape[-1], images.dtype)
    height, width = images.shape[-2:]
    cells = transformed(whole, down, across)
    rows = ((torch.arange(height) + 0.5) * (fresh / period)).long()
    return cells.index_select(2, rows)[..., :width]


@lru_cache(maxsize=16)
def _cells(fresh: int, period: int, width: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Rows to the means over each cell; columns to those of the cell in which their centre lies, widened."""
    bounds = torch.arange(fresh + 1) * (period / fresh)
    left = torch.arange(float(period))
    overlap = torch.minimum(bounds[1:, None], left + 1) - torch.maximum(bounds[:-1, None], left)
    means = (overlap.clamp(min=0) * (fresh / period)).to(dtype)
    repeated = means[((left + 0.5) * (fresh / period)).long()]
    return means, widened(repeated.T, width)


# The quantisation tables of the JPEG standard (ITU-T T.81, Annex K), row by row.
LUMINANCE = """
16 11 10 16 24 40 51 61  12 12 14 19 26 58 60 55  14 13 16 24 40 57 69 56  14 17 22 29 51 87 80 62
18 22 37 56 68 109 103 77  24 35 55 64 81 104 113 92  49 64 78 87 103 121 120 101  72 92 95 98 112 100 103 99
"""
CHROMINANCE = """
17 18 24 47 99 99 99 99  18 21 26 66 99 99 99 99  24 26 56 99 99 99 99 99  47 66 99 99 99 99 99 99
99 99 99 99 99 99 99 99  99 99 99 99 99 99 99 99  99 99 99 99 99 99 99 99  99 99 99 99 99 99 99 99
"""

# Luminance Y of R, G, B, and the chrominances (B - Y) / 1.772 and (R - Y) / 1.402 (ITU-R BT.601), the latter
# halved because they are taken of the sum of two rows.
TO_LUMINANCE = ((0.299, 0.587, 0.114),)
TO_CHROMINANCE = ((-0.299 / 3.544, -0.587 / 3.544, 0.25), (0.25, -0.587 / 2.804, -0.114 / 2.804))
CENTRE = 128 / 255


def jpeg(images: Tensor, severity: int, _: torch.Generator) -> Tensor:
    """Compressed and read back, at quality 25, 18, 15, 10 or 7.

    Only the lossy part of JPEG is done: colour transform, chrominance at half the resolution, quantised
    cosine transform of 8x8 blocks. The lossless part would be undone on reading, and this way all images go
    through together. Images that are not RGB have each channel treated as luminance.
    """
    quality = (25, 18, 15, 10, 7)[severity - 1]
    height, width = images.shape[-2:]
    whole = padded(images, 16)
    if images.shape[1] != 3:
        return _quantised(whole, LUMINANCE, quality, 1, CENTRE)[..., :height, :width]
    luma = _quantised(_mixed(TO_LUMINANCE, whole), LUMINANCE, quality, 1, CENTRE)
    pairs = whole[:, :, ::2] + whole[:, :, 1::2]
    chroma = _quantised(_mixed(TO_CHROMINANCE, pairs), CHROMINANCE, quality, 2, 0.0)
    return _coloured(luma, chroma)[..., :height, :width]


def _mixed(weights: Sequence[Sequence[float]], images: Tensor) -> Tensor:
    """Weighted sums of the channels."""
    planes = images.new_tensor(weights) @ images.flatten(2)
    return planes.view(len(images), len(weights), *images.shape[2:])


def _coloured(luma: Tensor, chroma: Tensor) -> Tensor:
    """R, G, B of the luminance (n, 1, H, W) and the chrominances (n, 2, H / 2, W) of pairs of rows."""
    height, width = luma.shape[-2:]
    result = luma.new_empty(len(luma), 3, height // 2, 2, width)
    light = luma.view(len(luma), height // 2, 2, width)
    blue, red = chroma[:, 0, :, None], chroma[:, 1, :, None]
    torch.add(light, red, alpha=1.402, out=result[:, 0])
    torch.add(
        light, red * (1.402 * 0.299 / 0.587) + blue * (1.772 * 0.114 / 0.587), alpha=-1, out=result[:, 1]
    )
    torch.add(light, blue, alpha=1.772, out=result[:, 2])
    return result.view(len(luma), 3, height, width)


def _quantised(planes: Tensor, table: str, quality: int, halving: int, centre: float) -> Tensor:
    """Blocks of 8 x (8 `halving`) to 8x8 coefficients, rounded to the table's steps, and back."""
    down, across, back = _cosines(halving, planes.shape[-1], planes.dtype)
    coefficients = transformed(planes, down, across)
    blocks = coefficients.view(-1, 8, coefficients.shape[-1])
    # What the standard subtracts from every value is eight times that in the first coefficient of a block.
    means = blocks[:, 0, ::8]
    means -= 8 * centre
    steps = _steps(table, quality, blocks.shape[2], planes.dtype)
    blocks.div_(steps).round_().mul_(steps)
    means += 8 * centre
    return transformed(coefficients, down.T, back)


@lru_cache(maxsize=16)
def _steps(table: str, quality: int, width: int, dtype: torch.dtype) -> Tensor:
    """(8, width): the table at a quality, as the Independent JPEG Group scales it, in units of the range."""
    scale = 5000 / quality if quality < 50 else 200 - 2 * quality
    published = torch.tensor([float(number) for number in table.split()])
    steps = ((published * scale + 50) / 100).floor().clamp(1, 255).view(8, 8) / 255
    return steps.repeat(1, width // 8).to(dtype)


@lru_cache(maxsize=16)
def _cosines(halving: int, width: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """The orthonormal cosine transform of eight rows; of columns averaged by `halving`; their way back."""
    frequency = torch.arange(8.0)[:, None]
    cosines = torch.cos(math.pi / 8 * (torch.arange(8.0) + 0.5) * frequency) / 2
    cosines[0] /= math.sqrt(2)
    cosines = cosines.to(dtype)
    repeated = cosines.repeat_interleave(halving, dim=1)
    return cosines, widened(repeated.T / halving, width), widened(repeated, width // halving)
