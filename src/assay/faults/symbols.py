"""Rows of symbols, bytes or tokens, that are changed together: which may change, and which are chosen."""

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

Corrupt: TypeAlias = Callable[[Tensor, Tensor, int, torch.Generator], Tensor]
"""From symbols (N, L), which of them may change, the severity and a source of randomness to symbols."""

LOST = torch.iinfo(torch.int64).min
"""What a fault puts where a symbol did not arrive; `closed_up` fills such gaps."""


def chosen(free: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """That share of the free places of every row, rounded up: with one seed, more of them contain the fewer.

    >>> chosen(torch.tensor([[True, True, False, True]]), 0.5, torch.Generator().manual_seed(0)).sum().item()
    2
    """
    keys = torch.rand(free.shape, generator=generator, dtype=torch.float64).masked_fill(~free, 2.0)
    ranks = keys.argsort(dim=1).argsort(dim=1)
    return free & (ranks < _counts(free, share))


def drawn(symbols: Tensor, free: Tensor, generator: torch.Generator) -> Tensor:
    """A symbol for every place, each drawn from the free ones of all rows."""
    known = symbols[free]
    if not len(known):
        return symbols
    return known[torch.randint(0, len(known), symbols.shape, generator=generator)]


def first(free: Tensor, share: float) -> Tensor:
    """That share of the free places of every row, counted from its start, and at least one where there is
    any."""
    return free & (free.cumsum(dim=1) <= _counts(free, share).clamp(min=1))


def last(free: Tensor, share: float) -> Tensor:
    """As `first`, counted from the end of every row."""
    return first(free.flip(1), share).flip(1)


def run(free: Tensor, share: float, generator: torch.Generator, *, least: int = 0) -> Tensor:
    """One run of that share of the free places of every row, and of `least` where there are as many; longer
    runs contain the shorter."""
    counts = free.sum(dim=1, keepdim=True)
    length = _counts(free, share).clamp(min=least).minimum(counts)
    middle = (torch.rand(len(free), 1, generator=generator) * counts).long()
    start = (middle - length // 2).clamp(min=0).minimum(counts - length)
    place = free.cumsum(dim=1) - 1
    return free & (place >= start) & (place < start + length)


def pairs(places: Tensor) -> Tensor:
    """(N, L // 2, 2): the places two by two; of an odd number the last is left out."""
    return places[:, : places.shape[1] // 2 * 2].reshape(len(places), -1, 2)


def with_pairs_swapped(symbols: Tensor, swapped: Tensor) -> Tensor:
    """The symbols, with those of the pairs in `swapped` (N, L // 2) exchanged."""
    both = pairs(symbols)
    exchanged = torch.where(swapped[:, :, None], both.flip(2), both).flatten(1)
    return torch.cat([exchanged, symbols[:, exchanged.shape[1] :]], dim=1)


def closed_up(symbols: Tensor, lost: Tensor, fill: int, *, at_the_start: bool = False) -> Tensor:
    """Without what was lost: the others move together, in order, and `fill` takes the end of every row, or
    its start."""
    order = (~lost if at_the_start else lost).int().argsort(dim=1, stable=True)
    return symbols.gather(1, order).masked_fill(lost.gather(1, order), fill)


def _counts(free: Tensor, share: float) -> Tensor:
    return (share * free.sum(dim=1, keepdim=True).double()).ceil().long()
