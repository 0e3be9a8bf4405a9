"""Selection: with which of their continuations weighted sequences go on, none twice.

The n sequences of one beta have n x V continuations, of which n go on. Drawing a token for each and
resampling now and then takes likely continuations many times over and loses the rest. Fearnhead and Clifford
(2003) let every continuation heavier than c go on with its own weight, and of the others a systematic sample,
each with weight c, where c is such that n go on. That is unbiased, has the least variance of the weights
among all unbiased ways, and at low temperatures it is a beam search that counts.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.omniinput.sampling.vocabulary import Weighed

Array = NDArray[np.float64]
Index = NDArray[np.int64]

NEAR = 3.0  # continuations down to c / NEAR are looked at, one by one, to find c; more, if c is smaller still


@dataclass(frozen=True)
class Selection:
    """The row that each row continues from, its next token, and ln of its weight (minus infinity: none)."""

    origin: Tensor
    tokens: Tensor
    log_weight: Tensor


@dataclass(frozen=True)
class _Heavy:
    """Continuations that go on for sure, the least weight c of those that do, and the mass of all others."""

    row: Index
    token: Index
    weight: Array
    level: Array  # c of every group
    rest: Array  # (rows, cells)


def selected(weighed: Weighed, log_weight: Tensor, group: Index, generator: torch.Generator) -> Selection:
    """As many continuations as there are rows; `group` is ascending, and each group chooses from its own.

    `log_weight` includes the sums over the continuations. Work and memory are those of rows x cells of the
    vocabulary, and of the few cells that have a heavy continuation.
    """
    logs = log_weight.numpy()
    sizes = np.bincount(group)
    top = np.maximum.reduceat(logs, np.cumsum(sizes) - sizes)
    mass = np.exp(logs - top[group])
    heavy = _heavy(weighed, mass, group, sizes)
    places = sizes - np.bincount(group[heavy.row], minlength=len(sizes))
    light = _light(weighed, mass, heavy, np.repeat(np.arange(len(sizes)), places), places, sizes, generator)
    row, token, weight = (
        np.concatenate(both) for both in zip((heavy.row, heavy.token, heavy.weight), light, strict=True)
    )
    order = _in_place(row)
    with np.errstate(divide="ignore"):
        new = np.log(weight[order]) + top[group]
    return Selection(*(torch.from_numpy(found) for found in (row[order], token[order], new)))


def _heavy(weighed: Weighed, mass: Array, group: Index, sizes: Index) -> _Heavy:
    """The more that go on for sure, the smaller c becomes, until it exceeds all others."""
    shares = mass[:, None] * weighed.shares()
    groups = len(sizes)
    level = np.bincount(group, shares.sum(axis=1)) / sizes
    while True:
        least = level / NEAR
        row, cell = _where(shares > least[group][:, None])
        weights = mass[row, None] * weighed.inside(row, cell)
        which, place = _where(weights > least[group[row]][:, None])
        weight, mine = weights[which, place], group[row[which]]
        shares[row, cell] = weights.sum(axis=1)
        total: Array = np.bincount(group, shares.sum(axis=1)).astype(np.float64)
        kept = _kept(weight, mine, total, sizes)
        number = np.bincount(mine[kept], minlength=groups)
        left = total - np.bincount(mine[kept], weight[kept], minlength=groups)
        level = np.maximum(left, 0.0) / np.maximum(sizes - number, 1)
        if ((level >= least) | (number == sizes)).all():
            break
    weights[which[kept], place[kept]] = 0.0
    shares[row, cell] = weights.sum(axis=1)
    token = cell[which[kept]] * weights.shape[1] + place[kept]
    return _Heavy(row[which[kept]], token, weight[kept], level, shares)


def _kept(weight: Array, group: Index, total: Array, sizes: Index) -> NDArray[np.bool_]:
    """Whether a weight exceeds c, which is what it and all smaller ones of its group leave to each place."""
    order = np.lexsort((-weight, group))
    weight, group = weight[order], group[order]
    first = np.searchsorted(group, np.arange(len(sizes)))[group]
    sums = np.concatenate([[0.0], np.cumsum(weight)])
    rank, heavier = np.arange(len(weight)) - first, sums[:-1] - sums[first]
    kept = np.empty(len(weight), dtype=bool)
    left = sizes[group] - rank
    kept[order] = (left > 0) & (weight * left > total[group] - heavier)  # rounding must not make places
    return kept


def _light(
    weighed: Weighed, mass: Array, heavy: _Heavy, group: Index, places: Index, sizes: Index,
    generator: torch.Generator,
) -> tuple[Index, Index, Array]:  # fmt: skip
    """Rows, tokens and weights of a systematic sample of the rest; of weight zero where nothing is left.

    It goes through the rows with the same step, and within each row from a place of the row's own: from the
    same place, rows of equal weight would all go on with the same quantile of their next tokens.
    """
    cumulated = np.concatenate([[0.0], np.cumsum(heavy.rest.sum(axis=1))])
    ends = np.cumsum(sizes)
    start, left = cumulated[ends - sizes], cumulated[ends] - cumulated[ends - sizes]
    number = np.arange(len(group)) - (np.cumsum(places) - places)[group]
    offset = torch.rand(len(sizes), dtype=torch.float64, generator=generator).numpy()
    wanted = start[group] + (number + offset[group]) / places[group] * left[group]
    row = np.searchsorted(cumulated, wanted, side="right") - 1
    row = row.clip((ends - sizes)[group], ends[group] - 1)
    turns = torch.rand(2, len(mass), dtype=torch.float64, generator=generator).numpy()[:, row]
    share = (wanted - cumulated[row]) / np.maximum(cumulated[row + 1] - cumulated[row], 1e-300)
    cell, share = _turned(heavy.rest[row], share, turns[0])
    weights = mass[row, None] * weighed.inside(row, cell)
    weights[weights > heavy.level[group][:, None]] = 0.0
    place, _ = _turned(weights, share, turns[1])
    empty = weights.sum(axis=1) <= 0
    token = np.where(empty, 0, cell * weights.shape[1] + place)
    return row, token, np.where(empty, 0.0, heavy.level[group])


def _turned(weights: Array, share: Array, turn: Array) -> tuple[Index, Array]:
    """Which of each row's weights lies at a share of their sum, counted from the one that lies at `turn`;
    and at which share of its own it is met."""
    each, last = torch.from_numpy(weights), weights.shape[1] - 1
    sums = each.cumsum(dim=1)
    total = sums[:, -1:]
    first = torch.searchsorted(sums, torch.from_numpy(turn)[:, None] * total, right=True).clamp_(max=last)
    place = sums.gather(1, first) - each.gather(1, first) + torch.from_numpy(share)[:, None] * total
    place = torch.minimum(place % total.clamp(min=1e-300), total * (1 - 1e-12))
    found = torch.searchsorted(sums, place, right=True).clamp_(max=last)
    inside = (place - sums.gather(1, found)) / each.gather(1, found).clamp(min=1e-300) + 1
    return found[:, 0].numpy(), inside[:, 0].clamp(0.0, 1 - 1e-12).numpy()


def _where(condition: NDArray[np.bool_]) -> tuple[Index, Index]:
    """Row and column of what is true; several times faster than np.nonzero of a matrix."""
    return np.divmod(np.flatnonzero(condition), condition.shape[1])


def _in_place(row: Index) -> Index:
    """The continuation that goes to each row: the first of a row stays in it, others fill what is free.

    Groups are ascending and each has as many continuations as rows, so none leaves its group.
    """
    order = np.argsort(row, kind="stable")
    ordered = row[order]
    first = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    free = np.ones(len(row), dtype=bool)
    free[ordered[first]] = False
    goes = np.empty(len(row), dtype=np.int64)
    goes[ordered[first]], goes[free] = order[first], order[~first]
    return goes
