"""Blurs that treat all images alike, as in Hendrycks and Dietterich 2019; lengths by `sizes`."""

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from assay.faults.filters import convolved, disk, gaussian_blurred
from assay.faults.sizes import blur_width, pixels

DISK_EDGE = 0.5
"""Pixels by which the rim of the defocus disk is softened (published: 0.1 at severity 1, 0.5 above)."""


def defocus_blur(images: Tensor, severity: int, _: torch.Generator) -> Tensor:
    """Averaged over a disk with a soft rim: out of focus."""
    radius = (3, 4, 6, 8, 10)[severity - 1]
    kernel = disk(pixels(radius, images))
    padded = torch.nn.functional.pad(kernel, [2, 2, 2, 2])
    return convolved(images, gaussian_blurred(padded, DISK_EDGE))


def gaussian_blur(images: Tensor, severity: int, _: torch.Generator) -> Tensor:
    """Convolved with a Gaussian."""
    sigma = (1, 2, 3, 4, 6)[severity - 1]
    return gaussian_blurred(images, blur_width(sigma, images))


def zoom_blur(images: Tensor, severity: int, _: torch.Generator) -> Tensor:
    """The mean of the image and its magnifications about the centre: moving towards the scene.

    Up to 1.1, 1.15, 1.2, 1.25 or 1.3 times; published in 11, 16, 11, 13 and 11 steps, here always in 11.
    """
    factors = torch.linspace(1, 1.05 + 0.05 * severity, 11)
    total = images.clone()
    for factor in factors.tolist():
        theta = torch.tensor([[[1 / factor, 0, 0], [0, 1 / factor, 0]]], dtype=images.dtype)
        grid = affine_grid(theta, [1, 1, *images.shape[-2:]], align_corners=False)
        total += grid_sample(
            images, grid.expand(len(images), -1, -1, -1), padding_mode="border", align_corners=False
        )
    return total / (len(factors) + 1)
