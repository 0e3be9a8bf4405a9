"""Faults that move pixels about, as in Hendrycks and Dietterich 2019; lengths by `sizes`."""

import torch
from torch import Tensor

from assay.faults.filters import gaussian_blurred, smooth_noise, warped
from assay.faults.sizes import blur_width, pixels


def glass_blur(images: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Blurred, every pixel exchanged with a random one near by, blurred again: frosted glass.

    Published as passes of swaps one after the other. Here each pixel looks up its neighbour in one step, at
    a normal distance with the standard deviation that those passes add up to: `delta * sqrt(passes / 3)`.
    """
    sigma, delta, passes = ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2))[severity - 1]
    width, reach = blur_width(sigma, images), blur_width(delta * (passes / 3) ** 0.5, images)
    offsets = reach * torch.randn(2, len(images), *images.shape[-2:], generator=generator)
    return gaussian_blurred(warped(gaussian_blurred(images, width), *offsets), width)


def elastic_transform(images: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Warped along a smooth random field.

    The published levels 1 and 2 are strong affine maps and 3 to 5 fine warps, so distance from the original
    goes up and down. Here the wavelength stays and the displacement grows.
    """
    displacement = (1.5, 2.5, 3.5, 5, 7)[severity - 1]
    shape = (2, len(images), *images.shape[-2:])
    offsets = pixels(displacement, images) * smooth_noise(shape, pixels(10, images), generator)
    return warped(images, *offsets)
