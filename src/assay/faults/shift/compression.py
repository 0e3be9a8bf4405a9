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

# Luminance Y of R, G, B (ITU-R BT.601). The chrominances are (R - Y) / 1.402 and (B - Y) / 1.772; here they
# stay undivided, and the steps they are rounded to are multiplied instead.
RED, GREEN, BLUE = 0.299, 0.587, 0.114
CHROMINANCE_SCALES = (1.402, 1.772)
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
    luminance = _steps(LUMINANCE, quality, (1.0,), whole.shape[-1], whole.dtype)
    if images.shape[1] != 3:
        return _quantised(whole, luminance, 1, CENTRE)[..., :height, :width]
    light = _light(whole)
    colour = whole[:, ::2] - light  # red and blue
    chrominance = _steps(CHROMINANCE, quality, CHROMINANCE_SCALES, whole.shape[-1] // 2, whole.dtype)
    light, colour = _quantised(light, luminance, 1, CENTRE), _quantised(colour, chrominance, 2, 0.0)
    return _coloured(light, colour)[..., :height, :width]


def _light(images: Tensor) -> Tensor:
    """(n, 1, H, W): the luminance."""
    planes = _luminance_weights(images.dtype) @ images.flatten(2)
    return planes.view(len(images), 1, *images.shape[2:])


@lru_cache(maxsize=4)
def _luminance_weights(dtype: torch.dtype) -> Tensor:
    return torch.tensor([[RED, GREEN, BLUE]], dtype=dtype)


def _coloured(light: Tensor, colour: Tensor) -> Tensor:
    """R, G, B of the luminance Y (n, 1, H, W), and of R - Y and B - Y (n, 2, H / 2, W) of pairs of rows."""
    count, _, height, width = light.shape
    result = light.new_empty(count, 3, height // 2, 2, width)
    light = light.view(count, 1, height // 2, 2, width)
    torch.add(light, colour[:, :, :, None], out=result[:, ::2])
    # Y = RED R + GREEN G + BLUE B, solved for G.
    green = (colour[:, 0] * (RED / GREEN)).add_(colour[:, 1], alpha=BLUE / GREEN)
    torch.sub(light[:, 0], green[:, :, None], out=result[:, 1])
    return result.view(count, 3, height, width)


def _quantised(planes: Tensor, steps: Tensor, halving: int, centre: float) -> Tensor:
    """Blocks of (8 `halving`) x (8 `halving`) to 8x8 coefficients, rounded to the steps, and back to rows
    halved and columns as before."""
    down, across, up, back = _cosines(halving, planes.shape[-1], planes.dtype)
    coefficients = transformed(planes, down, across)
    blocks = coefficients.view(*planes.shape[:2], -1, 8, steps.shape[-1])
    # What the standard subtracts from every value is eight times that in the first coefficient of a block.
    means = blocks[..., 0, ::8]
    if centre:
        means -= 8 * centre
    blocks.div_(steps).round_().mul_(steps)
    if centre:
        means += 8 * centre
    return transformed(coefficients, up, back)


@lru_cache(maxsize=16)
def _steps(table: str, quality: int, scales: Sequence[float], width: int, dtype: torch.dtype) -> Tensor:
    """(planes, 1, 8, width): the table at a quality, as the Independent JPEG Group scales it, in units of the
    range, times the scale of each plane."""
    scale = 5000 / quality if quality < 50 else 200 - 2 * quality
    published = torch.tensor([float(number) for number in table.split()])
    steps = ((published * scale + 50) / 100).floor().clamp(1, 255).view(8, 8) / 255
    return (steps.repeat(1, width // 8) * torch.tensor(scales)[:, None, None, None]).to(dtype)


@lru_cache(maxsize=16)
def _cosines(halving: int, width: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The orthonormal cosine transform of eight rows, each the mean of `halving`, and of columns alike; the
    way back, to eight rows, and to every column again."""
    frequency = torch.arange(8.0)[:, None]
    cosines = torch.cos(math.pi / 8 * (torch.arange(8.0) + 0.5) * frequency) / 2
    cosines[0] /= math.sqrt(2)
    cosines = cosines.to(dtype)
    repeated = cosines.repeat_interleave(halving, dim=1)
    means = repeated / halving
    return means, widened(means.T, width), cosines.T.contiguous(), widened(repeated, width // halving)
