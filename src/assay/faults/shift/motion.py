"""The camera moves or is turned."""

import math

import torch
from torch import Tensor

from assay.faults.filters import motion_blurred, warped
from assay.faults.sizes import blur_width, pixels


def motion_blur(images: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Smeared along a random direction within 45 degrees of horizontal (Hendrycks and Dietterich 2019).

    Published lengths are 10, 15, 15, 15, 20 pixels; here they grow at every step.
    """
    length, sigma = ((10, 3), (13, 5), (15, 8), (17, 12), (20, 15))[severity - 1]
    angles = (torch.rand(len(images), generator=generator) - 0.5) * (math.pi / 2)
    return motion_blurred(images, pixels(length, images), blur_width(sigma, images), angles)


def rotated(images: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Turned about the centre by up to 6, 12, 18, 24 or 30 degrees either way, and at least half of that."""
    draw = torch.rand(len(images), generator=generator) * 2 - 1
    angles = (draw.sign() * (1 + draw.abs()) / 2 * math.radians(6 * severity)).view(-1, 1, 1)
    height, width = images.shape[-2:]
    x = torch.arange(width) - (width - 1) / 2
    y = (torch.arange(height) - (height - 1) / 2)[:, None]
    right = x * (angles.cos() - 1) - y * angles.sin()
    down = x * angles.sin() + y * (angles.cos() - 1)
    return warped(images, right, down)
