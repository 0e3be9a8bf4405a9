"""log VC on clean data, at the window's own size, since VC depends on N."""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from assay.errors import InputError, UndecidedError
from assay.storage import storable
from assay.volatility.certainty import FEWEST, OFFSET, Doubles, central_mean, margins
from assay.volatility.probabilities import checked_rows

ROUNDING = 1e-6
"""Differences of log VC to ignore: where clean windows are all alike, last digits must not count."""


@storable("volatility.CleanReference")
@dataclass(frozen=True, eq=False)
class CleanReference:
    """The log VC of clean windows, by resampling n clean rows without replacement.

    Drawing with replacement would make ties, which VC reads as smoothness. Windows drawn from one finite
    sample vary too little, by the factor 1 - W / n of finite-population sampling; the spread is corrected for
    that. The sample itself remains one draw: `standard_error` says how far its mean may be off.

    `block` > 1 draws whole blocks of consecutive rows, for streams whose neighbouring rows are correlated.
    """

    log_vcs: Doubles
    """Ascending log VC of the drawn windows, spread corrected."""
    margins: Doubles
    """Ascending margins of the clean rows; with blocks, of every `block`-th row."""
    window: int
    rows: int
    block: int

    @classmethod
    def of(
        cls, probabilities: Any, window: int, *, block: int = 1, resamples: int = 1000, seed: int = 0
    ) -> Self:
        """Resample clean probabilities (or a Trace), in the order of the stream if block > 1.

        Costs the sorting of `resamples` windows.
        """
        return cls.of_margins(margins(checked_rows(probabilities)), window, block, resamples, seed)

    @classmethod
    def of_margins(
        cls, certainties: Doubles, window: int, block: int = 1, resamples: int = 1000, seed: int = 0
    ) -> Self:
        """The same from margins (Eq. 4)."""
        rows = len(certainties)
        if rows < window:
            raise UndecidedError(
                f"expected a reference of at least one window ({window} rows), got {rows}; "
                "pass more clean rows or make the window smaller"
            )
        if not 1 <= block <= window // 2:
            raise InputError(
                f"expected a block of 1 to {window // 2} rows (half a window), got {block}; choose another "
                "block or a larger window"
            )
        if resamples < 20:
            raise InputError(f"expected at least 20 resamples, got {resamples}; draw more")
        generator = np.random.default_rng(seed)
        log_vcs = _clean_windows(certainties, window, block, resamples, generator)
        return cls(log_vcs, np.sort(certainties[::block]), window, rows, block)

    @cached_property
    def mean(self) -> float:
        return float(self.log_vcs.mean())

    @cached_property
    def deviation(self) -> float:
        """Standard deviation of log VC from one clean window to the next."""
        return float(self.log_vcs.std(ddof=1))

    @cached_property
    def certainty(self) -> float:
        """The mean margin of clean rows."""
        return float(self.margins.mean())

    @cached_property
    def _ranks(self) -> list[float]:
        """log_vcs as a list, in which a single number is found ten times faster."""
        return [float(log_vc) for log_vc in self.log_vcs]

    @property
    def standard_error(self) -> float:
        """How far `mean` may be off because the clean rows are themselves a sample of `rows` rows."""
        return self.deviation * float(np.sqrt(self.window / self.rows))

    def p_value(self, log_vc: float, allowance: float = 0.0) -> float:
        """Two-sided: how rare a clean window at least as far out is, its centre uncertain by `allowance`.

        A rank among the resampled windows, never below 2 / (resamples + 1).
        """
        allowance += ROUNDING
        ranks = self._ranks
        above = len(ranks) - bisect_left(ranks, log_vc - allowance)
        below = bisect_right(ranks, log_vc + allowance)
        chance = 2 * (1 + (above if above < below else below)) / (len(ranks) + 1)
        return chance if chance < 1.0 else 1.0


def _clean_windows(
    certainties: Doubles, window: int, block: int, resamples: int, generator: np.random.Generator
) -> Doubles:
    rows = len(certainties)
    drawn = _drawn_log_vcs(certainties, window, block, resamples, generator)
    centre, size = drawn.mean(), window
    if 2 * window > rows:
        # Windows of more than half the sample hardly differ; the spread is measured at half the sample and
        # rescaled, log VC being a mean over the window whose variance falls with its length.
        size = max(FEWEST, rows // 2)
        drawn = _drawn_log_vcs(certainties, size, min(block, size), resamples, generator)
    spread = np.sqrt(size / window / (1 - size / rows))
    return np.sort(centre + spread * (drawn - drawn.mean()))


def _drawn_log_vcs(
    certainties: Doubles, window: int, block: int, resamples: int, generator: np.random.Generator
) -> Doubles:
    """log VC of `resamples` windows; each shuffle is cut into as many disjoint windows as fit."""
    found: list[float] = []
    while len(found) < resamples:
        shuffled = certainties[_shuffled_blocks(len(certainties), block, generator)]
        for start in range(0, len(shuffled) - window + 1, window):
            found.append(np.log(central_mean(np.sort(shuffled[start : start + window]), OFFSET)))
    return np.array(found[:resamples])


def _shuffled_blocks(rows: int, block: int, generator: np.random.Generator) -> Any:
    """Row numbers, whole blocks shuffled from a random start; rows cut off at the ends come last."""
    start = int(generator.integers(min(block, rows % block + 1)))
    blocks = (rows - start) // block
    inner = start + (generator.permutation(blocks)[:, None] * block + np.arange(block)).ravel()
    return np.concatenate([inner, np.arange(start), np.arange(start + blocks * block, rows)])
