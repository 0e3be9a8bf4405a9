"""DriftWatch: has the stream changed? The guard's alarms and the volatility watch's evidence, in one test.

The test bets, at odds that are fair or worse on a clean stream, that alarms have become more (or less)
frequent, as `volatility.evidence` does. The odds come from confidence limits of the clean
alarm rate p: a bet of share s on "more" pays (1 - s) + s X / p_upper for a block whose share of alarms is X,
which is at most 1 on average as long as the mean of X is at most p_upper. Blocks need not be single rows: X
is any number in [0, 1], so rows within a block may be correlated in any way. The limits are Chernoff's,
n kl(mean, p) = log(1 / doubt), which hold for the mean of any independent numbers in [0, 1] (Hoeffding 1963).

The evidence is the mean of this capital and that of the volatility watch. A false alarm can come from limits
that miss the clean rate (a quarter of `false_alarm_rate`), from the volatility watch's own clean sample (half
of its rate), or from luck in betting, which Ville's inequality bounds by 1 / threshold: the threshold takes
the rest. Capitals are compared as they were last settled, which that inequality does not strictly cover;
the rate is checked by simulation in the tests.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from torch import Tensor

from assay.errors import InputError
from assay.notebook import Shown
from assay.storage import storable
from assay.table import tabled
from assay.volatility.certainty import Doubles
from assay.volatility.evidence import ROUND, SHARES, Stakes
from assay.volatility.stream_watch import SequentialWatch
from assay.volatility.watch import VolatilityWatch

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FEWEST_BLOCKS = 20


@storable("operation.DriftState")
@dataclass(frozen=True)
class DriftState(Shown):
    """The state of the test after an update."""

    rows: int
    """Rows seen since the watch began or was reset."""
    alarm_rate: float
    """Share of alarms in the last full round of blocks; NaN before there was one."""
    reference_alarm_rate: float
    evidence: float
    """Capital of the test; valid however often you look."""
    alarm: bool
    """Whether the evidence has ever been decisive."""

    def summary(self) -> str:
        rate = "not known yet" if math.isnan(self.alarm_rate) else f"{self.alarm_rate:.1%}"
        verdict = "Alarm: the stream has changed." if self.alarm else "No alarm."
        return (
            f"The guard's alarm rate is {rate} (clean: {self.reference_alarm_rate:.1%}); evidence of a "
            f"change: {self.evidence:.3g}. {verdict}"
        )

    @tabled
    def to_frame(self) -> pd.DataFrame:
        return pd.DataFrame([{name: getattr(self, name) for name in self.__dataclass_fields__}])


@storable("DriftWatch")
class DriftWatch(SequentialWatch[DriftState]):
    """A sequential test of "the stream is like the clean data" on a guard's alarms and volatility.

    `false_alarm_rate` is the chance that the alarm ever sounds on a clean stream, however long it is and
    however often you look, if blocks of `block` consecutive rows are independent of one another. How a stream
    is cut into updates makes no difference to the bets on alarms. An update costs a few microseconds and a
    pass over its rows; memory is that of 1,000 rounds of history.
    """

    title: ClassVar[str] = "Drift in the stream"
    kept_as = "DriftWatch"
    columns = ("row", "alarm_rate", "log_evidence")

    def __init__(self, *, false_alarm_rate: float = 0.01, block: int = 1) -> None:
        super().__init__(false_alarm_rate=false_alarm_rate, block=block)
        self.reference_rate_ = math.nan
        self.limits_ = np.full(2, math.nan)
        self.reset()

    def calibrate(self, alarm: Any) -> Self:
        """Learn the clean alarm rate from a guard's alarms on clean rows, in the order of the stream.

        Pass fresh rows: on those it was calibrated on, the guard has its false-alarm rate by construction.
        """
        shares = _block_means(_alarm_flags(alarm), self.block)
        if len(shares) < FEWEST_BLOCKS:
            raise InputError(
                f"expected alarms of at least {FEWEST_BLOCKS} clean blocks of {self.block} rows, got "
                f"{len(shares)}; pass more clean rows or a smaller block"
            )
        rate, doubt = float(shares.mean()), self.false_alarm_rate / 8
        limits = [upper_limit(side, len(shares), doubt) for side in (rate, 1 - rate)]
        self.reference_rate_, self.limits_ = rate, np.array(limits)
        return self.reset()

    def _forget(self) -> None:
        self.stakes_ = Stakes.on(2 * len(SHARES))
        self.waiting_ = np.zeros(0)
        self.round_ = np.zeros(0)
        self.log_evidence_ = 0.0
        self.sounded_ = False

    def update(self, alarm: Any, volatility: VolatilityWatch | None = None) -> DriftState:
        """Add the guard's alarms on new rows, in order; `volatility` has been updated with the same rows."""
        self._expect_calibrated()
        threshold = self._log_threshold(volatility)
        flags = _alarm_flags(alarm)
        self.rows_ += len(flags)
        flags = np.concatenate([self.waiting_, flags])
        whole = len(flags) - len(flags) % self.block
        self.waiting_ = flags[whole:]
        blocks = np.concatenate([self.round_, _block_means(flags[:whole], self.block)])
        while len(blocks) >= ROUND:
            played, blocks = blocks[:ROUND], blocks[ROUND:]
            self.stakes_.play(self._returns(played))
            self._weigh(volatility, threshold)
            at = self.rows_ - len(self.waiting_) - len(blocks) * self.block
            self.history_.append((at, float(played.mean()), self.log_evidence_))
        self.round_ = blocks
        self._weigh(volatility, threshold)
        return self.state_now()

    def state_now(self) -> DriftState:
        self._expect_calibrated()
        return DriftState(
            rows=self.rows_,
            alarm_rate=self.history_[-1][1] if self.history_ else math.nan,
            reference_alarm_rate=self.reference_rate_,
            evidence=math.exp(min(self.log_evidence_, 700.0)),
            alarm=self.sounded_,
        )

    def summary(self) -> str:
        return f"{self.rows_} predictions watched. {self.state_now().summary()} {self._promise()}"

    def plot(self) -> "Figure":
        from assay.operation.figures import drift_figure

        return drift_figure(self.to_frame(), self.reference_rate_, self.false_alarm_rate)

    def _reference_facts(self) -> tuple[Any, ...]:
        return self.reference_rate_, self.limits_

    def _expect_calibrated(self) -> None:
        if math.isnan(self.reference_rate_):
            raise self._not_calibrated("clean_alarms")

    def _returns(self, shares: Doubles) -> Doubles:
        """log of what each bet pays over some blocks: on more alarms, then on fewer."""
        sides = np.stack([shares, 1 - shares]) / self.limits_[:, None]
        bets = np.array(SHARES)[:, None]
        return np.concatenate([np.log1p(bets * (side - 1)).sum(axis=1) for side in sides])

    def _weigh(self, volatility: VolatilityWatch | None, threshold: float) -> None:
        capital = self.stakes_.log_capital
        if volatility is not None and volatility.evidence_ is not None:
            capital = float(np.logaddexp(capital, volatility.evidence_.log_evidence) - np.log(2))
        self.log_evidence_ = capital
        self.sounded_ = self.sounded_ or capital >= threshold

    def _log_threshold(self, volatility: VolatilityWatch | None) -> float:
        spent = 0.0 if volatility is None else volatility.false_alarm_rate / 2
        remaining = 0.75 * self.false_alarm_rate - spent
        if remaining <= 0:
            raise InputError(
                f"expected a volatility watch of a false_alarm_rate below {1.5 * self.false_alarm_rate:g}, "
                f"got {2 * spent:g}; a test cannot promise more than its parts do"
            )
        return -math.log(remaining)


def upper_limit(mean: float, count: int, doubt: float) -> float:
    """The largest p with count * kl(mean, p) <= log(1 / doubt); the true mean is above it with chance doubt.

    >>> round(upper_limit(0.0, 100, 0.05), 4), upper_limit(1.0, 100, 0.05)
    (0.0295, 1.0)
    """
    if mean >= 1:
        return 1.0

    def excess(p: float) -> float:
        return count * _kl(mean, p) + math.log(doubt)

    nearly_one = 1 - 1e-12
    return float(brentq(excess, mean, nearly_one)) if excess(nearly_one) > 0 else 1.0


def _kl(mean: float, p: float) -> float:
    """The divergence of two coins, in nats."""
    first = mean * math.log(mean / p) if mean > 0 else 0.0
    return first + (1 - mean) * math.log((1 - mean) / (1 - p))


def _alarm_flags(alarm: Any) -> Doubles:
    values = alarm.numpy() if isinstance(alarm, Tensor) else np.asarray(alarm)
    if values.ndim != 1 or values.dtype.kind != "b":
        raise InputError(
            f"expected one truth value per row, got {values.dtype} of shape {values.shape}; "
            "pass verdict.alarm"
        )
    return values.astype(np.float64)


def _block_means(flags: Doubles, block: int) -> Doubles:
    """The share of alarms in each whole block."""
    return np.asarray(flags[: len(flags) - len(flags) % block].reshape(-1, block).mean(axis=1))
