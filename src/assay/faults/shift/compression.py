"""What is lost by keeping an image small: fewer pixels, or JPEG (Hendrycks and Dietterich 2019)."""

import math
from functools import lru_cache

import torch
from torch import Tensor

from assay.faults.shift.blocks import padded, transformed, widened


def pixelate(images: Tensor, severity: int, _: torch.Generator) -> Tensor:
    """Reduced to 60, 50, 40, 30 or 25 % of the side by averaging areas, and enlarged by repetition.

    A share p / q turns every q pixels into p cells, so one q x q matrix does all of a row, or of a column.
    """
    fresh, period = ((3, 5), (1, 2), (2, 5), (3, 10), (1, 4))[severity - 1]
    cells, across = _cells(fresh, period)
    height, width = images.shape[-2:]
    return transformed(padded(images, len(across)), cells, across)[..., :height, :width]


@lru_cache(maxsize=16)
def _cells(fresh: int, period: int) -> tuple[Tensor, Tensor]:
    """Each pixel as the mean over the cell in which its centre lies: for columns, and for rows."""
    bounds = torch.arange(fresh + 1) * (period / fresh)
    left = torch.arange(float(period))
    overlap = torch.minimum(bounds[1:, None], left + 1) - torch.maximum(bounds[:-1, None], left)
    means = overlap.clamp(min=0) * (fresh / period)
    cells = means[((left + 0.5) * (fresh / period)).long()]
    return cells, widened(cells.T)


# The quantisation tables of the JPEG standard (ITU-T T.81, Annex K), row by row.
LUMINANCE = """
16 11 10 16 24 40 51 61  12 12 14 19 26 58 60 55  14 13 16 24 40 57 69 56  14 17 22 29 51 87 80 62
18 22 37 56 68 109 103 77  24 35 55 64 81 104 113 92  49 64 78 87 103 121 120 101  72 92 95 98 112 100 103 99
"""
CHROMINANCE = """
17 18 24 47 99 99 99 99  18 21 26 66 99 99 99 99  24 26 56 99 99 99 99 99  47 66 99 99 99 99 99 99
99 99 99 99 99 99 99 99  99 99 99 99 99 99 99 99  99 99 99 99 99 99 99 99  99 99 99 99 99 99 99 99
"""

RED, GREEN, BLUE = 0.299, 0.587, 0.114
"""Weights of the luminance Y; the chrominances are Cb = (B - Y) / 1.772 and Cr = (R - Y) / 1.402."""


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
        return _luminance(whole, quality)[..., :height, :width]
    luma = (whole[:, :1] * RED).add_(whole[:, 1:2], alpha=GREEN).add_(whole[:, 2:], alpha=BLUE)
    chroma = _chrominance(whole, luma, quality)
    # Rows in pairs: both of a pair share their row of chrominance.
    pairs = _luminance(luma, quality).view(len(luma), 1, -1, 2, luma.shape[-1])
    blue, red = chroma[:, :1, :, None], chroma[:, 1:, :, None]
    green = -(red * (1.402 * RED / GREEN) + blue * (1.772 * BLUE / GREEN))
    result = pairs + torch.cat([red * 1.402, green, blue * 1.772], dim=1)
    return result.view(whole.shape)[..., :height, :width]


def _luminance(planes: Tensor, quality: int) -> Tensor:
    # Centred, in the standard's units of 255.
    return _quantised(planes - 128 / 255, _steps(LUMINANCE, quality), 1) + 128 / 255


def _chrominance(images: Tensor, luma: Tensor, quality: int) -> Tensor:
    """Cb and Cr (n, 2, H / 2, W): halved in both directions, quantised, columns repeated."""
    light = luma[:, :, ::2] + luma[:, :, 1::2]
    blue = (images[:, 2:, ::2] + images[:, 2:, 1::2] - light) / (2 * 1.772)
    red = (images[:, :1, ::2] + images[:, :1, 1::2] - light) / (2 * 1.402)
    return _quantised(torch.cat([blue, red], dim=1), _steps(CHROMINANCE, quality), 2)


def _quantised(planes: Tensor, steps: Tensor, halving: int) -> Tensor:
    """Blocks of 8 x (8 `halving`) to 8x8 coefficients, rounded to multiples of `steps`, and back."""
    down, forward, back = _cosines(halving)
    coefficients = transformed(planes, down, forward)
    table = steps.to(planes).repeat(1, coefficients.shape[-1] // 8)
    blocks = coefficients.view(-1, 8, table.shape[1])
    blocks = (blocks / table).round_().mul_(table)
    return transformed(blocks.view(coefficients.shape), down.T, back)


@lru_cache(maxsize=16)
def _steps(table: str, quality: int) -> Tensor:
    """The table (8, 8) at a quality, as the Independent JPEG Group scales it, in units of the range."""
    scale = 5000 / quality if quality < 50 else 200 - 2 * quality
    published = torch.tensor([float(number) for number in table.split()])
    return ((published * scale + 50) / 100).floor().clamp(1, 255).view(8, 8) / 255


@lru_cache(maxsize=2)
def _cosines(halving: int) -> tuple[Tensor, Tensor, Tensor]:
    """The orthonormal cosine transform of eight rows; of columns averaged by `halving`; and of those the way
    back, each repeated `halving` times."""
    frequency = torch.arange(8.0)[:, None]
    cosines = torch.cos(math.pi / 8 * (torch.arange(8.0) + 0.5) * frequency) / 2
    cosines[0] /= math.sqrt(2)
    repeated = cosines.repeat_interleave(halving, dim=1)
    return cosines, widened(repeated.T / halving), widened(repeated)
