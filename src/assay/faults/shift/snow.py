"""Falling snow, after Hendrycks and Dietterich 2019."""

import math

import torch
from torch import Tensor

from assay.faults.filters import motion_blurred, smooth_noise
from assay.faults.sizes import blur_width, pixels

FLAKE = 1.2
"""The width of a flake, in pixels of a published image."""

LEVELS = (
    (0.10, 0.21, 1.90, 10, 4, 0.80),
    (0.20, 0.22, 1.60, 12, 4, 0.70),
    (0.55, 0.21, 1.60, 12, 8, 0.70),
    (0.55, 0.21, 1.46, 12, 8, 0.65),
    (0.55, 0.22, 1.39, 12, 12, 0.55),
)
"""Brightness of the field and its spread, the deviations above which it is a flake, length and width of the
streaks, share of the image kept."""


def snow(images: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Flakes where a smooth random field is high, streaked by their fall, over a whitened image.

    The published cutoffs of an enlarged normal field are stated in its standard deviations, so that small
    images are covered as much as large ones. The flakes are of one size, and at level 2 cover 5 % (published
    9 %, more than at level 3).
    """
    mean, spread, cutoff, length, sigma, kept = LEVELS[severity - 1]
    shape = (len(images), 1, *images.shape[-2:])
    field = smooth_noise(shape, blur_width(FLAKE, images), generator)
    flakes = ((mean + spread * field) * (field >= cutoff)).clamp(0, 1)
    angles = -math.pi / 4 * (1 + 2 * torch.rand(len(images), generator=generator))
    streaks = motion_blurred(flakes, pixels(length, images), blur_width(sigma, images), angles)
    grey = images.mean(dim=1, keepdim=True)
    whitened = torch.lerp(torch.maximum(images, grey * 1.5 + 0.5), images, kept)
    return whitened + (streaks + streaks.flip(2, 3)).to(images)
