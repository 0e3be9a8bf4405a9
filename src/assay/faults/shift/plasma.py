"""Plasma: cloud-like random maps by the diamond-square method, many at once."""

import torch
from torch import Tensor


def plasma(count: int, sides: tuple[int, int], decay: float, generator: torch.Generator) -> Tensor:
    """Maps (count, 1, *sides) from 0 to 1, without seams at powers of two.

    Each halving of the grid fills in means of neighbours plus a uniform draw, `decay` squared times smaller
    than at the halving before (the published code multiplies its amplitude twice, and so do we).
    """
    height, width = sides
    size = 2 ** max(height - 1, width - 1).bit_length()
    maps = torch.zeros(count, size, size)
    step, amplitude = size, 1.0

    def filled(total: Tensor) -> Tensor:
        return total / 4 + amplitude * (2 * torch.rand(total.shape, generator=generator) - 1)

    while step > 1:
        half = step // 2
        corners = maps[:, ::step, ::step]
        pairs = corners + corners.roll(-1, dims=1)
        maps[:, half::step, half::step] = filled(pairs + pairs.roll(-1, dims=2))
        centres = maps[:, half::step, half::step]
        above = centres + centres.roll(1, dims=1)
        maps[:, ::step, half::step] = filled(above + corners + corners.roll(-1, dims=2))
        beside = centres + centres.roll(1, dims=2)
        maps[:, half::step, ::step] = filled(beside + corners + corners.roll(-1, dims=1))
        step, amplitude = half, amplitude / decay**2
    maps = maps[:, None, :height, :width]
    low = maps.amin(dim=(2, 3), keepdim=True)
    return (maps - low) / (maps.amax(dim=(2, 3), keepdim=True) - low)
