"""VolatilityWatch: a stream of predictions, watched for a change in certainty without a single label."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pandas as pd

from assay.errors import InputError
from assay.notebook import Shown
from assay.storage import storable
from assay.table import tabled
from assay.volatility.certainty import FEWEST, margin, margins
from assay.volatility.clean_reference import CleanReference
from assay.volatility.evidence import LESS, MORE, Evidence
from assay.volatility.probabilities import as_rows, bad_rows, checked_rows
from assay.volatility.rolling import RollingVolatility
from assay.volatility.stream_watch import SequentialWatch

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LESS_CERTAIN = f"{LESS} than the reference: accuracy may have fallen"
MORE_CERTAIN = f"{MORE} than the reference: easier inputs, or confident attacks"
BAD_ROWS = "rows that are not probabilities"
ALARMS = {
    ("", False): (),
    (LESS, False): (LESS_CERTAIN,),
    (MORE, False): (MORE_CERTAIN,),
    ("", True): (BAD_ROWS,),
    (LESS, True): (LESS_CERTAIN, BAD_ROWS),
    (MORE, True): (MORE_CERTAIN, BAD_ROWS),
}


@storable("volatility.VolatilityState")
@dataclass(slots=True)
class VolatilityState(Shown):
    """The state of a watch after an update.

    One is made for every update, a hundred thousand times a second: not frozen, which would be four times
    slower.
    """

    rows: int
    """Valid rows seen since the watch began or was reset."""
    window_rows: int
    """Rows in the window."""
    full: bool
    """Whether the window is full; until then log_vc is based on fewer rows and not comparable."""
    log_vc: float
    """log VC of the window; NaN below five rows."""
    reference_log_vc: float
    """Its mean on clean windows of the same size."""
    p_value: float
    """How rare a clean window at least as far out is, the reference being a sample; valid for one look.

    NaN until the window is full.
    """
    evidence: float
    """Capital of the betting test; valid however often you look."""
    direction: str
    """Which way the stream changed, "less certain" or "more certain"; empty before an alarm."""
    bad_rows: int
    """Rows of this update that are not probabilities; they stay out of the window."""
    alarms: tuple[str, ...]

    @property
    def alarm(self) -> bool:
        """Whether the evidence has ever been decisive, or this update contained bad rows."""
        return bool(self.alarms)

    def summary(self) -> str:
        found = (
            f"log VC is {self.log_vc:.2f} (clean: {self.reference_log_vc:.2f}, p = {self.p_value:.3g})"
            if self.full
            else f"The window is still filling ({self.window_rows} rows); log VC counts once it is full"
        )
        verdict = f"Alarm: {'; '.join(self.alarms)}." if self.alarms else "No alarm."
        return f"{found}; evidence of a change: {self.evidence:.3g}. {verdict}"

    @tabled
    def to_frame(self) -> pd.DataFrame:
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return pd.DataFrame([values | {"alarm": self.alarm, "alarms": "; ".join(self.alarms)}])


@storable("VolatilityWatch")
class VolatilityWatch(SequentialWatch[VolatilityState]):
    """Rolling VC over the last `window` predictions, with an alarm that you may check at any time.

    `false_alarm_rate` is the chance that the alarm ever sounds on a clean stream, however long it is and
    however often you look, if rows are independent draws like the clean ones. Where neighbouring rows are
    correlated (video), set `block` to the number of consecutive rows that may be: the reference is then
    resampled in blocks and the test bets on every `block`-th row only.

    An update costs the same few microseconds per row for any window. Memory is that of the window and of the
    reference's margins.
    """

    title: ClassVar[str] = "Volatility in Certainty over the stream"
    kept_as = "VolatilityWatch"
    columns = ("row", "certainty", "log_vc", "p_value", "log_evidence")

    def __init__(self, window: int = 1000, *, false_alarm_rate: float = 0.01, block: int = 1) -> None:
        if not window >= FEWEST:
            raise InputError(
                f"expected a window of at least {FEWEST} rows, got {window}; choose a larger one"
            )
        super().__init__(false_alarm_rate=false_alarm_rate, block=block)
        self.window = window
        self.classes_ = 0
        self.evidence_: Evidence | None = None
        self.reset()

    def calibrate(self, reference: Any, *, resamples: int = 1000, seed: int = 0) -> Self:
        """Learn what is normal from clean probabilities or a Trace, at least one window; more is better.

        With block > 1 the rows must be in the order of the stream.
        """
        rows = as_rows(reference)
        found = CleanReference.of(rows, self.window, block=self.block, resamples=resamples, seed=seed)
        evidence = Evidence(found, self.false_alarm_rate)
        self.classes_, self.evidence_ = rows.shape[1], evidence
        return self.reset()

    def is_calibrated_on(self, reference: Any, *, resamples: int = 1000, seed: int | None = None) -> bool:
        """Whether `calibrate` was given these rows; with `seed`, whether it also drew the same windows."""
        rows, mine = checked_rows(reference), self.reference
        if (len(rows), rows.shape[1]) != (mine.rows, self.classes_):
            return False
        other = CleanReference.of(rows, self.window, block=self.block, resamples=resamples, seed=seed or 0)
        return np.array_equal(mine.margins, other.margins) and (
            seed is None or np.array_equal(mine.log_vcs, other.log_vcs)
        )

    def _forget(self) -> None:
        self.rolling_ = RollingVolatility(self.window)
        self.bad_rows_ = 0
        if self.evidence_ is not None:
            self.evidence_ = Evidence(self.evidence_.reference, self.false_alarm_rate)

    @property
    def reference(self) -> CleanReference:
        return self._calibrated_evidence().reference

    def _reference_facts(self) -> tuple[Any, ...]:
        return self.classes_, self.reference.margins

    def update(self, probabilities: Any) -> VolatilityState:
        """Add one or many rows, in order, as an array, a tensor or a Trace.

        How a stream is cut into updates makes no difference to window, evidence or alarm. A row that is not a
        probability distribution over the classes of the reference is an alarm of its own kind; it is left
        out and the watch continues.
        """
        evidence = self._calibrated_evidence()
        certainty = margin(probabilities, self.classes_)
        if certainty is not None:
            self._add_margins([certainty], evidence)
            return self._state(0)
        rows = as_rows(probabilities)
        bad = bad_rows(rows) if rows.shape[1] == self.classes_ else np.ones(len(rows), bool)
        count = int(bad.sum())
        self.bad_rows_ += count
        self._add_margins(margins(rows[~bad] if count else rows).tolist(), evidence)
        return self._state(count)

    def state_now(self) -> VolatilityState:
        return self._state(0)

    @tabled
    def to_frame(self) -> pd.DataFrame:
        """A row per full window, the last 1,000: the row it ends with, its mean certainty and whether that is
        more or less than the reference's, log VC, p-value and log evidence."""
        frame = super().to_frame()
        clean = self.reference.certainty if len(frame) else math.nan
        frame.insert(2, "direction", [LESS if mean < clean else MORE for mean in frame["certainty"]])
        return frame

    def summary(self, state: VolatilityState | None = None) -> str:
        """The stream so far in words; with `state`, the verdict of that state."""
        reference = self.reference
        state = state or self._state(self.bad_rows_)
        return (
            f"{self.rows_} predictions watched in windows of {self.window}; clean ones have a mean certainty "
            f"of {reference.certainty:.3f} and windows a log VC of {reference.mean:.2f} ± "
            f"{reference.deviation:.2f}. {state.summary()} {self._promise()} "
            f"{self.bad_rows_} rows were not probabilities."
        )

    def plot(self) -> "Figure":
        from assay.volatility.figures import watch_figure

        return watch_figure(self.to_frame(), self.reference, self.false_alarm_rate)

    def _calibrated_evidence(self) -> Evidence:
        if self.evidence_ is None:
            raise self._not_calibrated("clean_probabilities")
        return self.evidence_

    def _add_margins(self, certainties: list[float], evidence: Evidence) -> None:
        window, block, start = self.window, self.block, 0
        while start < len(certainties):
            # Up to the end of a window that shares no row with the one before it.
            part = certainties[start : start + window - self.rows_ % window]
            self.rolling_.extend(part)
            evidence.add_rows(part[-self.rows_ % block :: block] if block > 1 else part)
            self.rows_ += len(part)
            start += len(part)
            if self.rows_ % window == 0:
                log_vc = self.rolling_.log_vc
                p_value = evidence.add_window(log_vc)
                certainty = float(np.mean(self.rolling_.arrivals))
                self.history_.append((self.rows_, certainty, log_vc, p_value, evidence.log_evidence))

    def _state(self, bad: int) -> VolatilityState:
        evidence, rolling = self._calibrated_evidence(), self.rolling_
        reference, window_rows, log_vc = evidence.reference, len(rolling.arrivals), rolling.log_vc
        full = window_rows == self.window
        return VolatilityState(
            self.rows_,
            window_rows,
            full,
            log_vc,
            reference.mean,
            evidence.p_value(log_vc) if full else math.nan,
            evidence.capital,
            evidence.direction,
            bad,
            ALARMS[evidence.direction, bad > 0],
        )
