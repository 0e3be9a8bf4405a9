"""Falling snow, as in Hendrycks and Dietterich 2019."""

import math

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from assay.faults.filters import motion_blurred
from assay.faults.sizes import blur_width, pixels

LEVELS = (
    (0.10, 0.3, 3.0, 0.50, 10, 4, 0.80),
    (0.15, 0.3, 2.0, 0.50, 12, 4, 0.70),
    (0.55, 0.3, 4.0, 0.90, 12, 8, 0.70),
    (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
    (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
)
"""Mean and deviation of the field, flake size, threshold, length and width of the streaks, share kept.
The published mean at level 2 is 0.2, which leaves level 3 no further from the original than level 2."""


def snow(images: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Flakes where an enlarged random field is high, streaked by their fall, over a whitened image."""
    mean, spread, size, threshold, length, sigma, kept = LEVELS[severity - 1]
    flakes = _flakes(images, mean, spread, size, threshold, generator)
    angles = -math.pi / 4 * (1 + 2 * torch.rand(len(images), generator=generator))
    streaks = motion_blurred(flakes, pixels(length, images), blur_width(sigma, images), angles)
    grey = images.mean(dim=1, keepdim=True)
    whitened = torch.lerp(torch.maximum(images, grey * 1.5 + 0.5), images, kept)
    return whitened + (streaks + streaks.flip(2, 3)).to(images)


def _flakes(
    images: Tensor, mean: float, spread: float, size: float, threshold: float, generator: torch.Generator
) -> Tensor:
    """(n, 1, H, W): a normal field, enlarged so that a flake is `size` published pixels, cut below.

    Enlarging averages neighbours and so narrows the field. Where flakes are smaller than published, it is
    narrowed by hand, so that as much of the image is covered.
    """
    height, width = images.shape[-2:]
    enlarged = max(1.0, pixels(size, images))
    cells = (math.ceil(height / enlarged), math.ceil(width / enlarged))
    spread *= _narrowing(size) / _narrowing(enlarged)
    field = mean + spread * torch.randn(len(images), 1, *cells, generator=generator)
    field = interpolate(field, size=(height, width), mode="bilinear", align_corners=True)
    return (field * (field >= threshold)).clamp(0, 1)


def _narrowing(factor: float) -> float:
    """By how much linear enlargement in two directions scales a standard deviation of independent numbers."""
    return 2 / 3 + 1 / (3 * factor**2)
