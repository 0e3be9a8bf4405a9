"""Random noise of a sensor, as in Hendrycks and Dietterich 2019."""

import math

import torch
from torch import Tensor


def gaussian(images: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """x + c z with z standard normal: low light."""
    c = (0.08, 0.12, 0.18, 0.26, 0.38)[severity - 1]
    return torch.add(images, _normal(images, generator), alpha=c)


def shot(images: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Poisson(c x) / c: light comes in c photons.

    By inversion, one pass over the images per possible count: several times faster than `torch.poisson`,
    which draws one number at a time. Counts beyond six standard deviations are cut: a draw in single
    precision cannot reach them.
    """
    c = (60, 25, 12, 5, 3)[severity - 1]
    most = math.ceil(c + 6 * math.sqrt(c))
    rate = images * c
    draw = torch.rand(images.shape, generator=generator).to(images)
    probability = torch.exp(-rate)
    reached, signs = probability.clone(), torch.zeros_like(images)
    for count in range(1, most + 1):
        # Signs, not comparisons: passes over floats are the fast ones. (1 + sign) / 2 is draw > reached.
        signs += (draw - reached).sign_()
        probability = probability.mul_(rate).mul_(1 / count)
        reached += probability
    return (signs + most) / (2 * c)


def impulse(images: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """A share c of the values is black or white: bit errors."""
    c = (0.03, 0.06, 0.09, 0.17, 0.27)[severity - 1]
    draw = torch.rand(images.shape, generator=generator).to(images)
    return torch.where(draw < c / 2, 0.0, torch.where(draw > 1 - c / 2, 1.0, images))


def speckle(images: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """x + c x z: noise that grows with the light."""
    c = (0.15, 0.2, 0.35, 0.45, 0.6)[severity - 1]
    return torch.addcmul(images, images, _normal(images, generator), value=c)


def _normal(images: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(images.shape, generator=generator).to(images)
