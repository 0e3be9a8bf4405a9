"""A number for every row, drawn from what the row contains: any split of the rows agrees on it."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.monitors.parts.row_blocks import ROWS

_HASHED = 2**16
"""Rows hashed at a time, which bounds memory."""

_GOLDEN, _FIRST, _SECOND = (
    np.uint64(number) for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)
"""Of SplitMix64 (Steele, Lea and Flood 2014)."""

Hashes = NDArray[np.uint64]


class RowKeys:
    """Keys of the rows of a stream, uniform in [0, 1): a function of the row, the seed and the salt alone.

    The rows with the smallest keys are a uniform sample of all rows, and the same one however the rows were
    split over machines and in whichever order they came. Equal rows would stay or go together, and a row
    that is repeated many times could take the whole sample; so the second, third, ... of equal rows in a
    block of 1024 draws a key of its own.

    >>> rows = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> bool((RowKeys(0).next(rows)[2] == RowKeys(0).next(rows[2:])[0]).all())
    True
    """

    def __init__(self, seed: int, salt: int = 0) -> None:
        self._generator = np.random.default_rng([seed, salt])
        self._offset = self._generator.integers(0, 2**64, dtype=np.uint64)
        self._weights: Hashes = np.empty(0, np.uint64)
        self._block: Hashes = np.empty(0, np.uint64)
        """Hashes of the rows of the block that is not full yet."""

    def next(self, *tables: Tensor) -> Tensor:
        """The keys of the next rows, each made of what it has in every one of these tables."""
        parts = zip(*(torch.split(table.flatten(1), _HASHED) for table in tables), strict=True)
        hashes = [self._hashes(torch.cat([piece.float() for piece in part], dim=1)) for part in parts]
        return torch.cat([torch.from_numpy(self._keys(found)) for found in hashes])

    def _hashes(self, rows: Tensor) -> Hashes:
        """w_0 + sum_i w_i x_i modulo 2^64 over the bits x_i of the numbers, with random w: different rows are
        equal with a chance of 2^-32 or less."""
        words = np.ascontiguousarray(rows.numpy()).view(np.uint32)
        if (missing := words.shape[1] - len(self._weights)) > 0:
            drawn = self._generator.integers(0, 2**64, missing, np.uint64)
            self._weights = np.concatenate([self._weights, drawn | np.uint64(1)])
        total: Hashes = (words * self._weights[: words.shape[1]]).sum(axis=1, dtype=np.uint64)
        return total + self._offset

    def _keys(self, hashes: Hashes) -> NDArray[np.float64]:
        before = len(self._block)
        block = np.concatenate([self._block, hashes])
        numbers = _repeats(block, np.arange(len(block)) // ROWS)
        self._block = block[len(block) // ROWS * ROWS :]
        mixed = hashes + (numbers[before:] + np.uint64(1)) * _GOLDEN
        mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
        mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
        keys: NDArray[np.float64] = ((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53
        return keys


def _repeats(hashes: Hashes, blocks: NDArray[np.int64]) -> Hashes:
    """How many equal hashes come before each one in its block."""
    order = np.lexsort((hashes, blocks))
    ordered, places = hashes[order], np.arange(len(hashes))
    starts = np.ones(len(hashes), bool)
    starts[1:] = (ordered[1:] != ordered[:-1]) | (blocks[order][1:] != blocks[order][:-1])
    first = np.maximum.accumulate(np.where(starts, places, 0))
    numbers = np.empty(len(hashes), np.uint64)
    numbers[order] = places - first
    return numbers
