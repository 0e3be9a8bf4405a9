"""The smallest contamination found, p* of Eq. 2, as a function of window and length of the stream."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from assay.engine import progress
from assay.errors import InputError
from assay.notebook import Shown
from assay.storage import storable
from assay.table import tabled
from assay.volatility.certainty import Doubles, margins
from assay.volatility.clean_reference import CleanReference
from assay.volatility.comparison import compare_log_vcs, window_log_vcs
from assay.volatility.evidence import Evidence
from assay.volatility.probabilities import checked_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHARES = (0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0)


@storable("volatility.ContaminationLimits")
@dataclass(frozen=True, eq=False)
class ContaminationLimits(Shown):
    """How often each test raised the alarm at each share, and the smallest share it finds reliably."""

    title: ClassVar[str] = "Smallest contamination found"

    rates: pd.DataFrame
    """A row per window, rows, test and share: the share of trials in which the test raised the alarm."""
    power: float
    trials: int
    false_alarm_rate: float

    @tabled
    def to_frame(self) -> pd.DataFrame:
        """A row per window, rows and test: the smallest share found, and the rate of alarms on clean rows."""
        found = []
        for (window, rows, test), part in self.rates.groupby(["window", "rows", "test"], sort=False):
            enough = part[(part["alarms"] >= self.power) & (part["share"] > 0)]["share"]
            clean = part[part["share"] == 0]["alarms"]
            smallest = float(enough.min()) if len(enough) else float("nan")
            false = float(clean.iloc[0]) if len(clean) else float("nan")
            found.append((window, rows, test, smallest, false))
        return pd.DataFrame(found, columns=["window", "rows", "test", "smallest", "false_alarms"])

    def summary(self) -> str:
        best = self.to_frame().sort_values("smallest").iloc[0]
        if np.isnan(best["smallest"]):
            return (
                f"No contamination was found in {self.power:.0%} of {self.trials} trials; use longer streams."
            )
        return (
            f"The smallest contamination found in at least {self.power:.0%} of {self.trials} trials is "
            f"{best['smallest']:.1%} of the rows, by the {best['test']} test with windows of "
            f"{best['window']} over {best['rows']} rows. On clean rows the tests raised the alarm in at most "
            f"{self.to_frame()['false_alarms'].max():.0%} of trials (stated: {self.false_alarm_rate:.0%})."
        )

    def plot(self) -> "Figure":
        from assay.volatility.figures import limits_figure

        return limits_figure(self.to_frame())


def smallest_contamination(
    clean: Any,
    perturbed: Any,
    *,
    windows: Sequence[int] = (250, 1000),
    rows: Sequence[int] = (1000, 3000),
    shares: Sequence[float] = SHARES,
    trials: int = 20,
    power: float = 0.8,
    false_alarm_rate: float = 0.05,
    seed: int = 0,
) -> ContaminationLimits:
    """Replace a share of the rows of clean streams by perturbed ones, and see which tests notice.

    Each trial splits the clean rows again: one half is the reference, and the stream is drawn from the other
    without replacement, since equal rows would make VC smoother than it is. So `rows` is at most half
    of the clean rows. Costs about as much as sorting trials x shares x rows numbers for each window.
    """
    pools = margins(checked_rows(clean)), margins(checked_rows(perturbed))
    half = len(pools[0]) // 2
    longest = max(rows)
    if longest > half or int(max(shares) * longest) > len(pools[1]) or max(windows) > half:
        raise InputError(
            f"expected windows and streams of at most {half} rows (half of the clean ones) and at least "
            f"{int(max(shares) * longest)} perturbed rows, got windows up to {max(windows)}, streams up to "
            f"{longest} and {len(pools[1])} perturbed rows; pass more rows or shorter streams"
        )
    found: dict[tuple[Any, ...], list[bool]] = {}
    jobs = list(product(range(trials), windows))
    for trial, window in progress(jobs, "contaminating"):
        generator = np.random.default_rng([seed, trial, window])
        order = generator.permutation(pools[0])
        reference = CleanReference.of_margins(order[:half], window, resamples=200, seed=seed)
        for share, length in product(shares, rows):
            stream = _stream(order[half:], pools[1], length, share, generator)
            for test, alarm in _alarms(reference, order[:half], stream, false_alarm_rate).items():
                found.setdefault((window, length, test, share), []).append(alarm)
    table = [(*key, float(np.mean(alarms))) for key, alarms in found.items()]
    frame = pd.DataFrame(table, columns=["window", "rows", "test", "share", "alarms"])
    return ContaminationLimits(frame, power, trials, false_alarm_rate)


def _stream(
    clean: Doubles, perturbed: Doubles, length: int, share: float, generator: np.random.Generator
) -> Doubles:
    count = round(share * length)
    mixed = np.concatenate(
        [generator.choice(clean, length - count, False), generator.choice(perturbed, count, False)]
    )
    return generator.permutation(mixed)


def _alarms(
    reference: CleanReference, clean: Doubles, stream: Doubles, false_alarm_rate: float
) -> dict[str, bool]:
    """Which tests raise the alarm somewhere in the stream; the t-test looks once, at the end."""
    window = reference.window
    evidence = Evidence(reference, false_alarm_rate)
    evidence.add_rows(stream.tolist())
    suspect = window_log_vcs(stream, window)
    for log_vc in suspect:
        evidence.add_window(float(log_vc))
    alarms = {"sequential": evidence.alarm}
    known = window_log_vcs(clean, window)
    if min(len(known), len(suspect)) >= 2:
        alarms["t-test"] = compare_log_vcs(known, suspect, window, false_alarm_rate).alarm
    return alarms
