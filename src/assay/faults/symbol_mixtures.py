"""Rows of tokens or bytes that make no sense, made from rows (n, L) that do; only `free` places change."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from assay.faults.partners import partners
from assay.faults.partners import shuffled_values as permuted
from assay.faults.symbols import drawn

PHRASE = 4
"""Symbols in a phrase that is moved or exchanged."""


def shuffled_values(ids: Tensor, free: Tensor, generator: torch.Generator) -> Tensor:
    """Every symbol comes from another row, from the same place."""
    return permuted(ids, generator, ~free)


def blended(ids: Tensor, free: Tensor, generator: torch.Generator) -> Tensor:
    """Every other symbol, on average, is that of another row in the same place."""
    return _exchanged(ids, free, torch.rand(ids.shape, generator=generator) < 0.5, generator)


def exchanged_phrases(ids: Tensor, free: Tensor, generator: torch.Generator) -> Tensor:
    """Every other phrase of four symbols, on average, is that of another row in the same place."""
    cells = torch.rand(len(ids), -(-ids.shape[1] // PHRASE), generator=generator) < 0.5
    return _exchanged(ids, free, cells.repeat_interleave(PHRASE, dim=1)[:, : ids.shape[1]], generator)


def halves(ids: Tensor, free: Tensor, generator: torch.Generator) -> Tensor:
    """The first half of one row with what stands behind it in another."""
    rank = free.cumsum(dim=1)
    return _exchanged(ids, free, 2 * rank > rank[:, -1:], generator)


def jigsaw(ids: Tensor, free: Tensor, generator: torch.Generator) -> Tensor:
    """The phrases of four symbols of every row in random order."""
    phrase = (free.cumsum(dim=1) - 1).clamp(min=0) // PHRASE
    keys = torch.rand(ids.shape, generator=generator).gather(1, phrase)
    return _reordered(ids, free, keys)


def reversed_order(ids: Tensor, free: Tensor, _: torch.Generator) -> Tensor:
    """The last symbol first."""
    return _reordered(ids, free, -torch.arange(ids.shape[1]).expand_as(ids).double())


def random_order(ids: Tensor, free: Tensor, generator: torch.Generator) -> Tensor:
    """The symbols of every row in random order."""
    return _reordered(ids, free, torch.rand(ids.shape, generator=generator))


def matched_noise(ids: Tensor, free: Tensor, generator: torch.Generator) -> Tensor:
    """Every symbol drawn from all rows, as often as it occurs there."""
    return torch.where(free, drawn(ids, free, generator), ids)


def _exchanged(ids: Tensor, free: Tensor, foreign: Tensor, generator: torch.Generator) -> Tensor:
    """With the symbols of another row where that is asked for and both rows are free."""
    other = partners(len(ids), generator)
    return torch.where(foreign & free & free[other], ids[other], ids)


def _reordered(ids: Tensor, free: Tensor, keys: Tensor) -> Tensor:
    """The free symbols of every row in the order of their keys, in its free places."""
    order = keys.masked_fill(~free, torch.inf).argsort(dim=1, stable=True)
    places = (~free).int().argsort(dim=1, stable=True)  # the free places first, in order
    return ids.scatter(1, places, ids.gather(1, order))


SYMBOL_MIXTURES: Mapping[str, Callable[[Tensor, Tensor, torch.Generator], Tensor]] = {
    mix.__name__: mix
    for mix in (
        shuffled_values,
        blended,
        exchanged_phrases,
        halves,
        jigsaw,
        reversed_order,
        random_order,
        matched_noise,
    )
}
