"""Frost on the window, after Hendrycks and Dietterich 2019, with textures that are made, not photographed."""

import torch
from torch import Tensor

from assay.faults.shift.plasma import plasma
from assay.faults.sizes import sides_of

TINT = (0.86, 0.94, 1.0)


def frost(images: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """a x + b t: the image dimmed, a texture t of ice over it.

    Published b of 0.7, 0.7, 0.75 at the last three levels dims faster than it frosts; here b keeps growing.
    """
    a, b = ((1.0, 0.4), (0.8, 0.6), (0.7, 0.75), (0.65, 0.9), (0.6, 1.05))[severity - 1]
    ice = _ice(len(images), sides_of(images), generator).to(images)
    tint = torch.tensor(TINT if images.shape[1] == 3 else [1.0] * images.shape[1], dtype=images.dtype)
    return torch.add(images * a, ice * tint.view(-1, 1, 1), alpha=b)


def _ice(count: int, sides: tuple[int, int], generator: torch.Generator) -> Tensor:
    """Bright feathered ridges that grow in from the border over a pale film.

    Where a rough cloudy map crosses its middle, `1 - |2 p - 1|` has a crest: a net of thin branching lines.
    """
    crests = 1 - (2 * plasma(count, sides, 1.5, generator) - 1).abs()
    film = plasma(count, sides, 2.0, generator)
    height, width = sides
    x = torch.linspace(-1, 1, width).abs()
    y = torch.linspace(-1, 1, height).abs()[:, None]
    border = torch.maximum(x.expand(height, -1), y.expand(-1, width))
    return ((0.35 + 0.65 * border) * (0.25 + 0.35 * film + 0.6 * crests**4)).clamp(0, 1)
