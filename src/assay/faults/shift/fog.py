"""Fog, as in Hendrycks and Dietterich 2019."""

import torch
from torch import Tensor

from assay.faults.shift.plasma import plasma
from assay.faults.sizes import sides_of


def fog(images: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """(x + c p) m / (m + c): a cloudy map p over the image, and the sum brought back to its maximum m."""
    c, decay = ((1.5, 2.0), (2.0, 2.0), (2.5, 1.7), (2.5, 1.5), (3.0, 1.4))[severity - 1]
    clouds = plasma(len(images), sides_of(images), decay, generator).to(images)
    brightest = images.amax(dim=(1, 2, 3), keepdim=True)
    return torch.add(images, clouds, alpha=c) * (brightest / (brightest + c))
