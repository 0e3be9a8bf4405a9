"""Fog, as in Hendrycks and Dietterich 2019."""

import torch
from torch import Tensor

from assay.faults.shift.plasma import plasma
from assay.faults.sizes import sides_of

CLOUD_DECAY = 1.7


def fog(images: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """(x + c p) m / (m + c): a cloudy map p over the image, and the sum brought back to its maximum m.

    Published with c of 1.5, 2, 2.5, 2.5, 3 and clouds that get rougher, which may take them nearer to the
    image; with the same clouds at every level, every image goes further with c.
    """
    c = (1.5, 2.0, 2.5, 2.75, 3.0)[severity - 1]
    clouds = plasma(len(images), sides_of(images), CLOUD_DECAY, generator).to(images)
    brightest = images.amax(dim=(1, 2, 3), keepdim=True)
    return torch.add(images, clouds, alpha=c) * (brightest / (brightest + c))
