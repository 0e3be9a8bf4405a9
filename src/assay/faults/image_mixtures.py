"""Images that make no sense, made from images (n, C, H, W) that do; values may be of any range."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from assay.faults.partners import blended, others, partners, shuffled_values

CELLS = 4
"""Images are cut into a grid of so many cells a side."""


def jigsaw(images: Tensor, generator: torch.Generator) -> Tensor:
    """The cells of a 4 x 4 grid in random order; what does not fill a cell stays at the edge."""
    count, channels, height, width = images.shape
    high, wide = height // CELLS, width // CELLS
    inside = images[:, :, : high * CELLS, : wide * CELLS]
    cells = inside.reshape(count, channels, CELLS, high, CELLS, wide).transpose(3, 4).flatten(2, 3)
    order = torch.rand(count, CELLS**2, generator=generator).argsort(dim=1)
    mixed = cells.gather(2, order[:, None, :, None, None].expand_as(cells))
    result = images.clone()
    whole = mixed.reshape(count, channels, CELLS, CELLS, high, wide).transpose(3, 4)
    result[:, :, : high * CELLS, : wide * CELLS] = whole.reshape_as(inside)
    return result


def exchanged_patches(images: Tensor, generator: torch.Generator) -> Tensor:
    """Every other cell of a 4 x 4 grid, on average, comes from another image."""
    foreign = torch.rand(len(images), 1, CELLS, CELLS, generator=generator) < 0.5
    mask = interpolate(foreign.float(), size=images.shape[-2:], mode="nearest").bool()
    return torch.where(mask, others(images, generator), images)


def halves(images: Tensor, generator: torch.Generator) -> Tensor:
    """The upper half of one image over the lower half of another."""
    lower = torch.arange(images.shape[2]) >= images.shape[2] // 2
    return torch.where(lower[:, None], others(images, generator), images)


def rotated(images: Tensor, _: torch.Generator) -> Tensor:
    """Turned by 90 degrees; by 180 where that would not fit."""
    return images.rot90(1 if images.shape[-1] == images.shape[-2] else 2, (2, 3))


def mirrored(images: Tensor, _: torch.Generator) -> Tensor:
    """Upside down, as in a mirror below."""
    return images.flip(2)


def exchanged_phase(images: Tensor, generator: torch.Generator) -> Tensor:
    """The amplitudes of one image with the phases of another: what is where, drawn with other strokes."""
    spectrum = torch.fft.rfft2(images)
    angles = spectrum[partners(len(images), generator)].angle()
    mixed: Tensor = torch.fft.irfft2(torch.polar(spectrum.abs(), angles), s=images.shape[-2:])
    return mixed


def matched_noise(images: Tensor, generator: torch.Generator) -> Tensor:
    """Normal noise with the mean and the spread of each channel."""
    deviation, mean = torch.std_mean(images, dim=(0, 2, 3), keepdim=True)
    return torch.randn(images.shape, generator=generator) * deviation + mean


IMAGE_MIXTURES: Mapping[str, Callable[[Tensor, torch.Generator], Tensor]] = {
    mix.__name__: mix
    for mix in (
        shuffled_values,
        blended,
        jigsaw,
        exchanged_patches,
        halves,
        rotated,
        mirrored,
        exchanged_phase,
        matched_noise,
    )
}
