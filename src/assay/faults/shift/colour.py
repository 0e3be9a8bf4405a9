"""Light and colour, as in Hendrycks and Dietterich 2019.

The published forms go to hue, saturation and value and back. With hue fixed the way there and back is one
line: value V is the largest channel, saturation S the share by which the smallest falls short of it, and
every channel lies at V - (V - x).
"""

import torch
from torch import Tensor


def brightness(images: Tensor, severity: int, _: torch.Generator) -> Tensor:
    """V + c with hue and saturation kept: all channels grow by the factor by which V does."""
    c = (0.1, 0.2, 0.3, 0.4, 0.5)[severity - 1]
    value = images.amax(dim=1, keepdim=True)
    brighter = (value + c).clamp(max=1)
    return torch.where(value > 0, images * (brighter / value), brighter)


def contrast(images: Tensor, severity: int, _: torch.Generator) -> Tensor:
    """(x - m) c + m, with m the mean of the channel."""
    c = (0.4, 0.3, 0.2, 0.1, 0.05)[severity - 1]
    return torch.lerp(images.mean(dim=(2, 3), keepdim=True), images, c)


def saturate(images: Tensor, severity: int, _: torch.Generator) -> Tensor:
    """S a + b: colours fade (severity 1, 2) or glare (3 to 5).

    Published with a of 0.3, 0.1 and 2 at the first three levels, of which the second changes most.
    Grey images have no colour: there the sensor saturates, and values are stretched by 1 + severity / 5 and
    cut at white.
    """
    if images.shape[1] == 1:
        return images * (1 + severity / 5)
    a, b = ((0.8, 0.0), (0.6, 0.0), (2.5, 0.0), (5.0, 0.1), (20.0, 0.2))[severity - 1]
    value = images.amax(dim=1, keepdim=True)
    short = value - images
    saturation = short.amax(dim=1, keepdim=True) / value.clamp(min=1e-12)
    wanted = (saturation * a + b).clamp(max=1)
    # A grey pixel has no hue; where it must become coloured (b > 0) it turns red, as hue 0 does.
    red = torch.tensor([0.0] + [1.0] * (images.shape[1] - 1), dtype=images.dtype).view(-1, 1, 1)
    scaled = short * (wanted / saturation.clamp(min=1e-12))
    return value - torch.where(saturation > 0, scaled, red * value * wanted)
