"""The paper's two-sample t-test (Eq. 2) between the log VC of two sets of windows."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from scipy.stats import ttest_ind

from assay.errors import InputError, UndecidedError
from assay.notebook import Shown
from assay.storage import storable
from assay.table import tabled
from assay.volatility.certainty import FEWEST, Doubles, central_mean, margins
from assay.volatility.evidence import LESS, MORE
from assay.volatility.probabilities import checked_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@storable("volatility.VolatilityComparison")
@dataclass(frozen=True, eq=False)
class VolatilityComparison(Shown):
    """log VC of the windows of two streams and Welch's t-test between them."""

    title: ClassVar[str] = "Volatility of two streams"

    reference: Doubles
    suspect: Doubles
    window: int
    statistic: float
    p_value: float
    false_alarm_rate: float

    @property
    def alarm(self) -> bool:
        """Whether p_value is below the false-alarm rate; right for one look at streams chosen beforehand."""
        return bool(self.p_value < self.false_alarm_rate)

    @property
    def direction(self) -> str:
        """Which way the suspect differs: a higher log VC means a less certain network."""
        return LESS if self.statistic > 0 else MORE

    def summary(self) -> str:
        verdict = f"differ, the suspect being {self.direction}" if self.alarm else "do not differ noticeably"
        return (
            f"log VC is {self.reference.mean():.2f} over {len(self.reference)} reference windows of "
            f"{self.window} rows and {self.suspect.mean():.2f} over {len(self.suspect)} suspect ones; they "
            f"{verdict} (t = {self.statistic:.2f}, p = {self.p_value:.2g}). In one look, the chance of a "
            f"false alarm on a clean stream is {self.false_alarm_rate:.0%}; to look repeatedly, use a "
            "VolatilityWatch."
        )

    @tabled
    def to_frame(self) -> pd.DataFrame:
        """A row per window: stream and log_vc."""
        names = ["reference"] * len(self.reference) + ["suspect"] * len(self.suspect)
        return pd.DataFrame({"stream": names, "log_vc": np.concatenate([self.reference, self.suspect])})

    def plot(self) -> "Figure":
        from assay.volatility.figures import comparison_figure

        return comparison_figure(self.reference, self.suspect)


def compare_volatility(
    reference: Any, suspect: Any, *, window: int = 1000, false_alarm_rate: float = 0.05
) -> VolatilityComparison:
    """t-test between the log VC of disjoint windows of clean and of suspect probabilities (or Traces).

    The paper draws its sets at random from one pool. Sets that share rows are not independent: against rows
    of another pool, more sets only make the test more confident of the difference between two samples, and
    its false-alarm rate grows far above the stated one. So both streams are cut into disjoint windows here.
    Welch's form, because contamination changes the spread too.
    """
    return compare_log_vcs(
        window_log_vcs(margins(checked_rows(reference)), window),
        window_log_vcs(margins(checked_rows(suspect)), window),
        window,
        false_alarm_rate,
    )


def compare_log_vcs(
    reference: Doubles, suspect: Doubles, window: int, false_alarm_rate: float = 0.05
) -> VolatilityComparison:
    """The same for values of log VC."""
    if not 0 < false_alarm_rate < 1:
        raise InputError(f"expected a false_alarm_rate between 0 and 1, got {false_alarm_rate}")
    if min(len(reference), len(suspect)) < 2:
        raise UndecidedError(
            f"expected at least two windows of {window} rows of each, got {len(reference)} of the reference "
            f"and {len(suspect)} of the suspect; pass more rows or a smaller window"
        )
    test = ttest_ind(suspect, reference, equal_var=False)
    return VolatilityComparison(
        reference, suspect, window, float(test.statistic), float(test.pvalue), false_alarm_rate
    )


def window_log_vcs(certainties: Doubles, window: int) -> Doubles:
    """log VC of each whole window of margins, in order; the rest is dropped."""
    if window < FEWEST:
        raise InputError(f"expected a window of at least {FEWEST} rows, got {window}")
    whole = len(certainties) // window
    ordered = np.sort(certainties[: whole * window].reshape(whole, window), axis=1)
    return np.array([np.log(central_mean(row)) for row in ordered])
