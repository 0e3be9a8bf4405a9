"""Alarms over time: what to make of a guard's verdicts on rows that come one after another."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.stats import binom
from torch import Tensor

from assay.errors import InputError, NotFittedError
from assay.guard.verdict import Verdict

if TYPE_CHECKING:
    from assay.guard.any_guard import AnyGuard

TAILS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""Shares of clean scores among the highest of which a faulty row is bet to lie."""
SHARES = (0.01, 0.03, 0.1, 0.3, 0.9)
"""Shares of faulty rows that are bet on."""
TAIL_LEVEL = 0.95
"""The probability, over calibration sets, with which the odds of all bets are fair or worse."""


@dataclass(frozen=True, eq=False)
class StreamVerdict:
    """The verdict on every row, and the alarm of the stream after it."""

    verdict: Verdict
    alarm: Tensor
    started: Tensor
    """Where the alarm of the stream began."""


class AlarmStream:
    """A guard's verdicts on a stream, debounced: `stream(inputs)`, rows in the order they came.

    Built by `guard.stream`. The alarm of the stream starts by one of two policies and ends after `quiet` rows
    in a row without an alarm of the guard. `promise` states its false alarms on clean data.

    k of n: it starts with an alarm of the guard that is at least the k-th among the last `of` rows. On
    independent clean rows of which a share a raises the alarm, it starts in a row with probability at most
    a P(Bin(of - 1, a) >= k - 1).

    Sequential: it starts when the evidence reaches rows_per_hour / (block false_alarms_per_hour). A bet on
    "of rows, a share s is faulty, and these score as the highest q of clean ones do" multiplies its stake by
    1 + s (1 / q - 1) or 1 - s; q is an upper limit of the clean share, with probability 0.95 over calibration
    sets. Every row (of `block` consecutive ones, which may be correlated, the mean return) adds a new stake
    of 1: an e-detector of Shiryaev and Roberts' kind (Shin, Ramdas and Rinaldo 2024, Definition 2.4), which
    on clean data takes as many rows as its threshold, on average, to reach it (their Proposition 2.5).
    """

    def __init__(
        self,
        guard: "AnyGuard",
        *,
        k: int = 3,
        of: int = 5,
        quiet: int = 5,
        rows_per_hour: float | None = None,
        false_alarms_per_hour: float | None = None,
        block: int = 1,
    ) -> None:
        _check(k, of, quiet, rows_per_hour, false_alarms_per_hour, block)
        guard.decided_threshold()
        self.guard = guard
        self.k, self.of, self.quiet, self.block = k, of, quiet, block
        self.rows_per_hour = rows_per_hour
        self.false_alarms_per_hour = false_alarms_per_hour
        self._bets: _Bets | None = None
        self._decisive = math.inf
        if rows_per_hour is not None and false_alarms_per_hour is not None:
            self._bets = _Bets.of(guard)
            self._decisive = rows_per_hour / (block * false_alarms_per_hour)
        self.reset()

    def reset(self) -> None:
        """Forget the stream: for another one, or after an alarm was dealt with."""
        self._recent: list[bool] = []
        self._calm = 0
        self._raised = False
        self._returns: list[Any] = []
        if self._bets is not None:
            self._bets.restart()

    def __call__(self, inputs: Any) -> StreamVerdict:
        """Judge rows that follow those seen so far."""
        return self.update(self.guard(inputs))

    def update(self, verdict: Verdict) -> StreamVerdict:
        """The same for a verdict that is already known."""
        raised, started = [], []
        for alarm, score in zip(verdict.alarm.tolist(), verdict.scores.tolist(), strict=True):
            before = self._raised
            self._add(alarm, score)
            raised.append(self._raised)
            started.append(self._raised and not before)
        return StreamVerdict(
            verdict, torch.tensor(raised, dtype=torch.bool), torch.tensor(started, dtype=torch.bool)
        )

    @property
    def promise(self) -> str:
        """False alarms on clean rows, as a sentence."""
        if self.false_alarms_per_hour is not None:
            return (
                f"on clean data, at most {self.false_alarms_per_hour:g} false alarms an hour on average, at "
                f"{self.rows_per_hour:g} rows an hour of which "
                + (
                    "each is independent of the others"
                    if self.block == 1
                    else f"blocks of {self.block} are independent"
                )
                + f"; with probability {TAIL_LEVEL:g} over calibration sets"
            )
        rate = self._rate()
        chance = start_chance(self.k, self.of, rate)
        often = f"in at most 1 of {1 / chance:,.0f} rows"
        if self.rows_per_hour is not None:
            often += f", {chance * self.rows_per_hour:.3g} times an hour"
        return f"on independent clean rows of which {rate:g} raise the alarm, it starts {often}"

    def _rate(self) -> float:
        rate = self.guard.calibration.get("false_alarm_rate")
        if rate is None:
            raise NotFittedError(
                "expected a calibrated guard, got one with a threshold of your own, which promises no rate; "
                "call calibrate(trace)"
            )
        return float(rate)

    def _add(self, alarm: bool, score: float) -> None:
        self._recent = [*self._recent, alarm][-self.of :]
        self._calm = 0 if alarm else self._calm + 1
        reached = self._evidence_reached(score) if self._bets else alarm and sum(self._recent) >= self.k
        if self._raised:
            self._raised = self._calm < self.quiet
        elif reached:
            self._raised = True

    def _evidence_reached(self, score: float) -> bool:
        assert self._bets is not None
        self._returns.append(self._bets.returns(score))
        if len(self._returns) < self.block:
            return False
        evidence = self._bets.play(np.mean(self._returns, axis=0))
        self._returns = []
        if evidence < self._decisive:
            return False
        self._bets.restart()
        return True


class _Bets:
    """Stakes on every tail and share."""

    def __init__(self, thresholds: Any, chances: Any) -> None:
        self.thresholds = np.asarray(thresholds, dtype=np.float64)
        shares = np.array(SHARES)
        self.hit = 1 + shares * (1 / np.asarray(chances, dtype=np.float64)[:, None] - 1)
        self.miss = np.broadcast_to(1 - shares, self.hit.shape)
        self.restart()

    @classmethod
    def of(cls, guard: "AnyGuard") -> "_Bets":
        tails = guard.calibration.get("tails")
        if not tails:
            raise NotFittedError(
                "expected a guard calibrated on enough rows to know its highest clean scores, got one that "
                "is not; call calibrate(trace) with more rows, or watch k of n"
            )
        return cls(*zip(*tails, strict=True))

    def restart(self) -> None:
        self.stakes = np.zeros(self.hit.shape) if hasattr(self, "hit") else 0.0

    def returns(self, score: float) -> Any:
        """What one row multiplies every stake by; a score that is not finite is as high as any."""
        beyond = self.thresholds < (score if math.isfinite(score) else math.inf)
        return np.where(beyond[:, None], self.hit, self.miss)

    def play(self, returns: Any) -> float:
        """The evidence after a round: the mean over all bets."""
        self.stakes = np.minimum((self.stakes + 1) * returns, 1e300)
        return float(np.mean(self.stakes))


def start_chance(k: int, of: int, rate: float) -> float:
    """The most often that k of n starts, per independent row: the row is an alarm, and k - 1 before it are.

    >>> start_chance(1, 1, 0.05), round(start_chance(3, 5, 0.05), 6)
    (0.05, 0.000701)
    """
    return rate * float(binom.sf(k - 2, of - 1, rate))


def _check(
    k: int, of: int, quiet: int, rows_per_hour: float | None, false_alarms_per_hour: float | None, block: int
) -> None:
    if not 1 <= k <= of or quiet < 1 or block < 1:
        raise InputError(
            f"expected 1 <= k <= of, and quiet and block of at least 1, got k={k}, of={of}, quiet={quiet}, "
            f"block={block}"
        )
    for name, value in (("rows_per_hour", rows_per_hour), ("false_alarms_per_hour", false_alarms_per_hour)):
        if value is not None and not (value > 0 and math.isfinite(value)):
            raise InputError(f"expected {name} above 0, got {value}")
    if false_alarms_per_hour is not None and rows_per_hour is None:
        raise InputError("expected rows_per_hour beside false_alarms_per_hour, got none; say how many come")
