"""The faults that rows of bytes and rows of tokens share: symbols cut off, mixed up or pushed in."""

import torch
from torch import Tensor

from assay.faults.symbols import LOST, first, last, run

KEPT = (0.8, 0.6, 0.4, 0.25, 0.1)


def truncation(symbols: Tensor, free: Tensor, severity: int, _: torch.Generator) -> Tensor:
    """Only the first 80, 60, 40, 25 or 10 % of the symbols arrive, at least one."""
    return symbols.masked_fill(free & ~first(free, KEPT[severity - 1]), LOST)


def lost_start(symbols: Tensor, free: Tensor, severity: int, _: torch.Generator) -> Tensor:
    """Only the last 80, 60, 40, 25 or 10 % of the symbols arrive, at least one."""
    return symbols.masked_fill(free & ~last(free, KEPT[severity - 1]), LOST)


def shuffled_run(symbols: Tensor, free: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """One run of 10, 20, 40, 70 or 100 % of the symbols is out of order: none is where it was."""
    struck = run(free, (0.1, 0.2, 0.4, 0.7, 1.0)[severity - 1], generator, least=2)
    keys = torch.rand(symbols.shape, generator=generator, dtype=torch.float64)
    order = keys.masked_fill(~struck, 2.0).argsort(dim=1)  # the struck places first, at random
    rank, count = torch.arange(symbols.shape[1]), struck.sum(dim=1, keepdim=True)
    # Each takes from the next in that order, and the last from the first.
    following = torch.where(rank + 1 < count, rank + 1, torch.where(rank < count, 0, rank))
    return symbols.scatter(1, order, symbols.gather(1, order.gather(1, following)))


def pushed_in(symbols: Tensor, free: Tensor, struck: Tensor, strays: Tensor) -> Tensor:
    """With `strays` in the struck places; the symbols there and behind move on, and the last fall out.

    >>> row = torch.tensor([[1, 2, 3, 4]])
    >>> struck = torch.tensor([[False, True, False, False]])
    >>> pushed_in(row, torch.ones_like(struck), struck, torch.full_like(row, 9)).tolist()
    [[1, 9, 2, 3]]
    """
    stays = free & ~struck
    place = (~free).int().argsort(dim=1, stable=True)  # the free places first, in order
    rank = (stays.cumsum(dim=1) - 1).clamp(min=0)
    moved = torch.where(stays, symbols.gather(1, place.gather(1, rank)), symbols)
    return torch.where(struck, strays, moved)
