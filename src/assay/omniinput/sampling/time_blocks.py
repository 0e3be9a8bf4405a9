"""TimeBlocks: sums of recorded quantities in 20 to 40 blocks of time, for errors that include correlation."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay.storage import storable

Array = NDArray[np.float64]

MOST_BLOCKS = 40


@storable("omniinput.TimeBlocks")
@dataclass
class TimeBlocks:
    """Sums of quantities recorded per chunk; when 40 blocks are full, neighbours merge and blocks double.

    The first axis of each array is the block. All blocks but the last consist of `chunks_per_block` chunks.
    With `in_logs` the values are logarithms of the sums, for weights beyond the range of a double.
    """

    sums: dict[str, Array]
    in_logs: bool = False
    chunks_per_block: int = 1
    chunks_in_last: int = 0

    def add(self, chunk: dict[str, Array]) -> None:
        if not self.sums:
            self.sums = {name: value[None].astype(np.float64) for name, value in chunk.items()}
            self.chunks_in_last = 1
            return
        if self.chunks_in_last == self.chunks_per_block:
            self._open()
        for name, value in chunk.items():
            self.sums[name][-1] = self._joined(self.sums[name][-1], value)
        self.chunks_in_last += 1

    def _joined(self, one: Array, other: Array) -> Array:
        return np.logaddexp(one, other) if self.in_logs else one + other

    def _open(self) -> None:
        if len(self) == MOST_BLOCKS:
            self.sums = {name: self._joined(value[0::2], value[1::2]) for name, value in self.sums.items()}
            self.chunks_per_block *= 2
        nothing = -np.inf if self.in_logs else 0.0
        self.sums = {
            name: np.concatenate([value, np.full((1, *value.shape[1:]), nothing)])
            for name, value in self.sums.items()
        }
        self.chunks_in_last = 0

    def __len__(self) -> int:
        return len(next(iter(self.sums.values()))) if self.sums else 0

    def whole(self) -> dict[str, Array]:
        """The blocks, the last one folded into its neighbour if it is less than half full."""
        if len(self) < 2 or 2 * self.chunks_in_last >= self.chunks_per_block:
            return self.sums
        folded = {}
        for name, value in self.sums.items():
            folded[name] = value[:-1].copy()
            folded[name][-1] = self._joined(folded[name][-1], value[-1])
        return folded


def burned_in(series: Array) -> int:
    """How many leading blocks to drop: MSER (White 1997) over block means (blocks, quantities), at most half.

    Drops the start whose removal gives the smallest standard error of the mean of the rest, summed over the
    quantities in units of their own spread.
    """
    blocks = len(series)
    spread = series.std(axis=0)
    scaled = series / np.where(spread > 0, spread, 1.0)
    errors = [scaled[cut:].var(axis=0).sum() / (blocks - cut) for cut in range(blocks // 2 + 1)]
    return int(np.argmin(errors)) if blocks >= 4 else 0


def correlation_time(influences: Array) -> float:
    """The factor by which correlation of consecutive blocks increases the variance of their mean; at least 1.

    influences (blocks, ensembles, quantities) is the effect of each block on each quantity, zero on average.
    The autocorrelation is pooled over ensembles and quantities and summed up to where pairs of lags turn
    negative (initial positive sequence, Geyer 1992); 1 / blocks corrects for the removal of the mean.
    """
    count = len(influences)
    scaled = influences / np.sqrt((influences**2).mean(axis=(0, 1)))
    lags = range(1, count // 2)
    correlations = [float((scaled[:-lag] * scaled[lag:]).mean()) + 1 / count for lag in lags]
    total = 1.0
    for pair in zip(correlations[0::2], correlations[1::2], strict=False):
        if sum(pair) <= 0:
            break
        total += 2 * sum(pair)
    return max(total, 1.0)


def presence_floor(present: NDArray[np.bool_]) -> Array:
    """The least standard error of a log density seen in m of B blocks, sqrt((1 - m/B) / m); NaN where m = 0.

    To a bootstrap that resamples blocks and drops the empty draws, a bin visited in one block of twenty looks
    certain; but the share of blocks that visit it cannot be known better than this.
    """
    blocks = len(present)
    seen = present.sum(axis=0).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(seen > 0, np.sqrt((1 - seen / blocks) / seen), np.nan))
