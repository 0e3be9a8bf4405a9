"""Anomalies: failures of an image sensor so severe that the image loses its meaning.

Pixel trap, row add logic and shifted pixel are the failures of the safety-monitor benchmark, taken there from
an automotive functional-safety report. A broken part is broken in every image: positions are drawn once per
seed, and what is broken at one severity is broken at all higher ones.
"""

import torch
from torch import Tensor

from assay.faults.template import family


def pixel_trap(images: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """A share of the pixels is stuck, at black or at white."""
    share = (0.05, 0.1, 0.2, 0.4, 0.6)[severity - 1]
    broken = _broken(images[0, 0].numel(), share, generator).view(images.shape[-2:])
    stuck = torch.randint(0, 2, broken.shape, generator=generator).to(images)
    return torch.where(broken, stuck, images)


def row_add_logic(images: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Some rows have a constant between 0.25 and 0.75 added or taken away, and are cut to the range."""
    share = (0.1, 0.25, 0.5, 0.75, 1.0)[severity - 1]
    height = images.shape[2]
    broken = _broken(height, share, generator)
    constants = 0.25 + 0.5 * torch.rand(height, generator=generator)
    signs = torch.randint(0, 2, (height,), generator=generator) * 2 - 1
    return images + (broken * constants * signs).to(images)[:, None]


def shifted_pixel(images: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """A share of the rows is read out shifted, each by its own number of pixels; what falls out re-enters."""
    share = (0.1, 0.25, 0.5, 0.75, 1.0)[severity - 1]
    height, width = images.shape[-2:]
    broken = _broken(height, share, generator)
    shifts = torch.randint(1, width, (height,), generator=generator) * broken
    columns = (torch.arange(width) - shifts[:, None]) % width
    return images[:, :, torch.arange(height)[:, None], columns]


def dead_rows(images: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """A share of the rows is black."""
    share = (0.1, 0.25, 0.5, 0.75, 1.0)[severity - 1]
    return images * ~_broken(images.shape[2], share, generator)[:, None]


def black_image(images: Tensor, severity: int, _: torch.Generator) -> Tensor:
    """The exposure fails: light falls to 40, 30, 20, 10 and 0 %."""
    return images * ((5 - severity) / 10)


def stuck_frame(images: Tensor, severity: int, _: torch.Generator) -> Tensor:
    """The camera's buffer is frozen: the lower 20, 40, 60, 80 or 100 % of every image show the set's first.

    An image that lags by one would be a good image with the label of another: no monitor of single inputs
    can see that. A frozen one is seen where images join, and in operation because outputs stop moving.
    """
    fresh = images.shape[2] - round(images.shape[2] * severity / 5)
    result = images.clone()
    result[:, :, fresh:] = images[:1, :, fresh:]
    return result


def _broken(count: int, share: float, generator: torch.Generator) -> Tensor:
    """A mask of that share, at least one; with one seed, masks of larger shares contain those of smaller."""
    order = torch.randperm(count, generator=generator)
    return torch.zeros(count, dtype=torch.bool).scatter_(0, order[: max(1, round(share * count))], True)


ANOMALY = family(
    "anomaly",
    {
        "pixel_trap": pixel_trap,
        "row_add_logic": row_add_logic,
        "shifted_pixel": shifted_pixel,
        "black_image": black_image,
        "dead_rows": dead_rows,
        "stuck_frame": stuck_frame,
    },
    whole=True,
)
