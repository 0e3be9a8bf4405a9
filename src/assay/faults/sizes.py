"""Published severities, applied to other image sizes.

Hendrycks and Dietterich 2019 state intensities (noise, brightness, contrast) as shares of the range and
lengths (radii, shifts) in pixels of a 224x224 image. Intensities stay as published at every size. Lengths
shrink with the side, as if the same scene were taken by a coarser camera, but not below those of a 32x32
image, where faults would become invisible.
"""

import math

from torch import Tensor

PUBLISHED_SIDE = 224
SMALLEST_SIDE = 32

PIXEL_WIDTH = 0.35
"""Standard deviation, in pixels, below which a blur is lost in the pixel grid."""


def sides_of(images: Tensor) -> tuple[int, int]:
    """Height and width."""
    height, width = images.shape[-2:]
    return height, width


def pixels(published: float, images: Tensor) -> float:
    """A published length, in pixels of these images.

    >>> import torch
    >>> pixels(7.0, torch.zeros(1, 3, 224, 224)), pixels(7.0, torch.zeros(1, 1, 32, 32))
    (7.0, 1.0)
    """
    return published * max(min(images.shape[-2:]), SMALLEST_SIDE) / PUBLISHED_SIDE


def blur_width(published: float, images: Tensor) -> float:
    """A published blur in pixels of these images, joined with the pixel's own so that it never vanishes."""
    return math.hypot(pixels(published, images), PIXEL_WIDTH)
