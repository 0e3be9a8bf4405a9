"""Spatter: water or mud on the lens, after Hendrycks and Dietterich 2019."""

import torch
from torch import Tensor

from assay.faults.filters import gaussian_blurred, smooth_noise
from assay.faults.sizes import blur_width

WATER = (175 / 255, 238 / 255, 238 / 255)
MUD = (63 / 255, 42 / 255, 20 / 255)


def spatter(images: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Drops where a smooth random field is high: water up to severity 3, mud above.

    The published cutoffs of a blurred normal field are stated here in its standard deviations, so that
    the wet share of the image (3, 14, 24, 50, 57 %) does not depend on its size. The published water is
    shaded by an edge detector and a histogram; here a drop is brighter the thicker it is.
    """
    width, cutoff, strength = (
        (4, 1.89, 0.6),
        (3, 1.06, 0.6),
        (2, 0.71, 0.6),
        (1, 0.0, 1.0),
        (1, -0.18, 1.0),
    )[severity - 1]
    shape = (len(images), 1, *images.shape[-2:])
    field = smooth_noise(shape, blur_width(width, images), generator).to(images)
    if severity <= 3:
        thickness = strength * (0.5 + (field - cutoff).clamp(0, 1) / 2) * (field > cutoff)
        return images + _coloured(WATER, images) * thickness
    layer = strength * gaussian_blurred((field > cutoff).to(images), blur_width(1, images))
    return torch.lerp(images, _coloured(MUD, images).expand_as(images), layer)


def _coloured(colour: tuple[float, float, float], images: Tensor) -> Tensor:
    """(C, 1, 1): the colour for RGB, its mean for any other number of channels."""
    values = torch.tensor(colour, dtype=images.dtype)
    channels = images.shape[1]
    return (values if channels == 3 else values.mean().expand(channels)).view(-1, 1, 1)
