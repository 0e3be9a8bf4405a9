"""Blurs and warps of many images at once.

Gaussian blurs are two products with a banded matrix, which folds the border handling in; other kernels go
through the Fourier transform, so cost does not grow with their radius; warps are one bilinear lookup.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from scipy.fft import next_fast_len
from torch import Tensor
from torch.nn.functional import grid_sample, pad

SUBSAMPLES = 16
"""Points per pixel side by which the area of a disk inside a pixel is counted."""


def gaussian_blurred(images: Tensor, sigma: float) -> Tensor:
    """Each (..., H, W) blurred; borders repeat the edge. Cost H W (H + W), small against a network's."""
    height, width = images.shape[-2:]
    down, across = _smoothing(height, sigma), _smoothing(width, sigma)
    return down.to(images) @ images @ across.T.to(images)


@lru_cache(maxsize=32)
def _smoothing(size: int, sigma: float) -> Tensor:
    """The matrix of a sampled Gaussian, cut at four sigma, whose rows sum to one."""
    reach = max(1, math.ceil(4 * sigma))
    offsets = torch.arange(-reach, reach + 1)
    weights = torch.exp(-0.5 * (offsets / sigma) ** 2)
    columns = (torch.arange(size)[:, None] + offsets).clamp(0, size - 1)
    matrix = torch.zeros(size, size).scatter_add_(1, columns, weights.expand(size, -1))
    return matrix / weights.sum()


def smooth_noise(shape: Sequence[int], sigma: float, generator: torch.Generator) -> Tensor:
    """Gaussian fields of mean 0 and standard deviation 1 whose neighbours agree over `sigma` pixels."""
    field = torch.randn(*shape, generator=generator)
    down, across = _smoothing(shape[-2], sigma), _smoothing(shape[-1], sigma)
    # The variance of a weighted sum of independent numbers is the sum of the squared weights.
    spread = (down.square().sum(dim=1)[:, None] * across.square().sum(dim=1)).sqrt()
    return (down @ field @ across.T) / spread


@lru_cache(maxsize=32)
def disk(radius: float) -> Tensor:
    """A disk of that radius, each pixel weighted by the share of it that the disk covers."""
    reach = max(1, math.ceil(radius))
    points = (np.arange((2 * reach + 1) * SUBSAMPLES) + 0.5) / SUBSAMPLES - (reach + 0.5)
    inside = np.hypot(points[:, None], points) <= radius
    cover = inside.reshape(2 * reach + 1, SUBSAMPLES, 2 * reach + 1, SUBSAMPLES).mean(axis=(1, 3))
    return torch.from_numpy(cover / cover.sum()).float()


def convolved(images: Tensor, kernel: Tensor) -> Tensor:
    """Images (n, C, H, W) with one kernel (k, k) for all; k odd; borders repeat the edge."""
    reach = kernel.shape[-1] // 2
    padded, size = _padded(images, reach)
    # Centred on the first pixel, so that the result is not shifted.
    placed = torch.zeros(size).to(images)
    placed[: kernel.shape[0], : kernel.shape[1]] = kernel
    transfer = torch.fft.rfft2(placed.roll((-reach, -reach), dims=(0, 1)))
    return _filtered(padded, transfer, size, reach, images)


def motion_blurred(images: Tensor, length: float, sigma: float, angles: Tensor) -> Tensor:
    """Images (n, C, H, W) smeared along one angle each (n,), in radians.

    Weights fall as one half of a Gaussian from the current place back along the path; steps of at most half
    a pixel are placed exactly by their phase in the Fourier domain.
    """
    taps = torch.arange(0, length + 0.25, 0.5)
    weights = torch.exp(-0.5 * (taps / sigma) ** 2)
    weights = weights / weights.sum()
    padded, size = _padded(images, math.ceil(length) + 1)
    rows = 2 * math.pi * torch.fft.fftfreq(size[0])
    columns = 2 * math.pi * torch.fft.rfftfreq(size[1])
    down = torch.polar(
        weights.expand(len(angles), -1)[:, :, None], -(angles.sin()[:, None] * taps)[:, :, None] * rows
    )
    across = torch.polar(torch.ones(()), -(angles.cos()[:, None] * taps)[:, :, None] * columns)
    transfer = torch.einsum("ntu,ntv->nuv", down, across)[:, None]
    return _filtered(padded, transfer, size, math.ceil(length) + 1, images)


def _padded(images: Tensor, reach: int) -> tuple[Tensor, tuple[int, int]]:
    """Edges repeated by `reach`, and the transform size that holds them."""
    height, width = (side + 2 * reach for side in images.shape[-2:])
    return pad(images, [reach] * 4, mode="replicate"), (
        int(next_fast_len(height, real=True)),
        int(next_fast_len(width, real=True)),
    )


def _filtered(padded: Tensor, transfer: Tensor, size: tuple[int, int], reach: int, like: Tensor) -> Tensor:
    spectrum = torch.fft.rfft2(padded, s=size) * transfer
    height, width = like.shape[-2:]
    whole: Tensor = torch.fft.irfft2(spectrum, s=size)
    return whole[..., reach : reach + height, reach : reach + width]


def warped(images: Tensor, right: Tensor, down: Tensor) -> Tensor:
    """Each pixel taken from `right`, `down` pixels away, (n, H, W) or (1, H, W); borders mirror."""
    height, width = images.shape[-2:]
    x = (torch.arange(width) + right + 0.5) * (2 / width) - 1
    y = (torch.arange(height)[:, None] + down + 0.5) * (2 / height) - 1
    grid = torch.stack([x, y], dim=-1).expand(len(images), -1, -1, -1)
    return grid_sample(images, grid.to(images), padding_mode="reflection", align_corners=False)
