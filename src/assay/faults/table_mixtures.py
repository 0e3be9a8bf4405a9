"""Rows of a table that make no sense, made from rows (n, features) that do."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from assay.faults.partners import blended, others, shuffled_values


def exchanged_columns(rows: Tensor, generator: torch.Generator) -> Tensor:
    """Every other value, on average, comes from another row."""
    foreign = torch.rand(rows.shape, generator=generator) < 0.5
    return torch.where(foreign, others(rows, generator), rows)


def halves(rows: Tensor, generator: torch.Generator) -> Tensor:
    """The first half of the columns of one row with the other half of another."""
    behind = torch.arange(rows.shape[1]) >= rows.shape[1] // 2
    return torch.where(behind, others(rows, generator), rows)


def jigsaw(rows: Tensor, generator: torch.Generator) -> Tensor:
    """The values of every row among other columns, in units of the spread of each."""
    deviation, mean = _spread_and_mean(rows)
    order = torch.rand(rows.shape, generator=generator).argsort(dim=1)
    return ((rows - mean) / deviation).gather(1, order) * deviation + mean


def mirrored(rows: Tensor, _: torch.Generator) -> Tensor:
    """On the other side of the mean, as far away."""
    return 2 * rows.mean(dim=0) - rows


def matched_noise(rows: Tensor, generator: torch.Generator) -> Tensor:
    """Normal noise with the mean and the spread of each column."""
    deviation, mean = _spread_and_mean(rows)
    return torch.randn(rows.shape, generator=generator).to(rows) * deviation + mean


def _spread_and_mean(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Of every column; a column that never varies has a spread too small to matter, and not 0."""
    deviation, mean = torch.std_mean(rows, dim=0)
    return deviation.clamp(min=torch.finfo(rows.dtype).tiny), mean


TABLE_MIXTURES: Mapping[str, Callable[[Tensor, torch.Generator], Tensor]] = {
    mix.__name__: mix
    for mix in (
        shuffled_values,
        blended,
        exchanged_columns,
        halves,
        jigsaw,
        mirrored,
        matched_noise,
    )
}
