"""An indicator in operation from counts alone: label shift fitted to the histograms, and what if it is more.

Operation is taken for a mixture of the test set's classes whose shares have changed, and nothing else (label
shift). A histogram cell then holds the share sum_y q(y) P(cell | y), hundreds of equations for the few q(y),
and an indicator is a sum over classes. The interval is for the value *realised* on the inputs that were
counted. Two things tell how far to trust it: a test whether any shares fit the counts, and the range that is
left if errors within each class may be gamma times as likely (the marginal sensitivity model: Tan 2006; Zhao,
Small and Bhattacharya 2019).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from assay.errors import InputError, MissingLabelsError
from assay.network import Network
from assay.notebook import Shown
from assay.reshaping.array_types import Floats
from assay.reshaping.grouped_cells import GroupedCells
from assay.reshaping.histogram import Histogram
from assay.reshaping.indicator import Indicator, RatioIndicator, accuracy, name_of
from assay.reshaping.indicator_draws import IndicatorDraws, function_draws, ratio_draws
from assay.reshaping.mixture import fitted_mixture
from assay.reshaping.sensitivity import GAMMAS, Sensitivity, checked_gamma
from assay.statistics import check_level
from assay.storage import storable
from assay.table import tabled
from assay.trace import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ALARM = 0.01
"""The alarm is raised if counts like these are rarer than this under label shift."""
SHOWN = (1.0, 1.25, 1.5, 2.0, 3.0)


@storable("CountsEstimate")
@dataclass(frozen=True, eq=False)
class CountsEstimate(Shown):
    """An indicator in operation, if only class frequencies have changed; and what is left if more has.

    `value`, with `lower` and `upper` at `level`, is for the inputs that were counted. `shares` are the class
    frequencies fitted. `p_value`: how often counts fit as badly as these if class frequencies are all that
    changed; `alarm` means they hardly ever do. `sensitivity` holds the ends for every gamma, or None where
    the indicator does not say what an error is.
    """

    title = "Indicator from counts"

    name: str
    value: float
    lower: float
    upper: float
    level: float
    unshaped: float
    inputs: int
    points: int
    shares: Floats
    p_value: float
    sensitivity: Sensitivity | None = None

    @property
    def alarm(self) -> bool:
        """The counts do not fit: this is not a change of class frequencies alone."""
        return self.p_value < ALARM

    def range_at(self, gamma: float) -> tuple[float, float]:
        """The interval if the odds of an error within each class may change by a factor up to gamma.

        From 0 to 1 if the alarm is raised: counts that fit no class frequencies say nothing about errors.
        """
        if self.alarm:
            checked_gamma(gamma)
            return 0.0, 1.0
        if self.sensitivity is None:
            raise InputError(
                f"expected an indicator with errors within a class, such as accuracy, got {self.name}; "
                "leave gamma out"
            )
        return self.sensitivity.range_at(gamma)

    def breaking_gamma(self, least: float) -> float | None:
        """The gamma from which the range reaches below `least`: None if even the largest does not.

        1 means that the interval itself reaches below.
        """
        if not 0 <= least <= 1:
            raise InputError(f"expected a requirement between 0 and 1, got {least}")
        if self.sensitivity is None:
            raise InputError(f"expected an indicator with errors within a class, got {self.name}")
        return 1.0 if self.alarm and least > 0 else self.sensitivity.breaking_gamma(least)

    def requirement(self, least: float) -> str:
        """The sentence for a safety case: whether the indicator stays above `least`, and unless what."""
        if self.alarm:
            return (
                f"Cannot tell whether {self.name} is at least {least:g}: the counts do not fit a change of "
                f"class frequencies (p = {self.p_value:.3f})."
            )
        if self.upper < least:
            return f"With {self.level:.0%} confidence {self.name} is below {least:g}."
        gamma = self.breaking_gamma(least)
        if gamma is None:
            return (
                f"{self.name.capitalize()} stays above {least:g} even if errors within a class become "
                f"{GAMMAS[-1]:g} times as likely."
            )
        if gamma <= 1:
            return f"Cannot tell whether {self.name} is at least {least:g}: the interval contains it."
        return (
            f"{self.name.capitalize()} stays above {least:g} unless errors within a class become "
            f"{gamma:.2f} times as likely."
        )

    def summary(self) -> str:
        """The estimate, how certain it is, and whether its assumption fits the counts."""
        text = (
            f"If only class frequencies have changed, {self.name} in operation is {self.value:.4f} "
            f"({self.level:.0%} interval {self.lower:.4f} to {self.upper:.4f}, for the {self.inputs:,} "
            f"inputs counted); on the test set it was {self.unshaped:.4f}. "
        )
        if self.alarm:
            text += (
                f"But the counts do not fit that (p = {self.p_value:.3f}): something else has changed, and "
                "the estimate cannot be relied on. "
            )
        else:
            text += f"The counts fit that (p = {self.p_value:.2f}). "
        if self.sensitivity is not None and not self.alarm:
            lower, upper = self.range_at(2.0)
            text += f"If errors within a class may be twice as likely, or half: {lower:.4f} to {upper:.4f}. "
        return text.strip()

    @tabled
    def to_frame(self) -> pd.DataFrame:
        """A row per gamma: gamma, lower, upper; the first is the interval itself, with the value."""
        rows: list[dict[str, Any]] = [
            {"gamma": 1.0, "value": self.value, "lower": self.lower, "upper": self.upper}
        ]
        if self.sensitivity is not None:
            for gamma in SHOWN[1:]:
                lower, upper = self.range_at(gamma)
                rows.append({"gamma": gamma, "value": self.value, "lower": lower, "upper": upper})
        return pd.DataFrame(rows)

    def facts(self) -> dict[str, Any]:
        """Every number, as plain values for machines."""
        skipped = ("shares", "sensitivity")
        own = {name: value for name, value in vars(self).items() if name not in skipped}
        ranges = self.to_frame()[["gamma", "lower", "upper"]].to_dict(orient="records")
        return own | {"alarm": self.alarm, "shares": self.shares.tolist(), "ranges": ranges}

    @tabled
    def class_frequencies(self) -> pd.DataFrame:
        """A row per class: its share in operation, as fitted."""
        return pd.DataFrame({"label": np.arange(len(self.shares)), "operational": self.shares})

    def plot(self) -> "Figure":
        """The range against gamma."""
        from assay.reshaping.figures import sensitivity_figure

        return sensitivity_figure(self)


def estimate_from_counts(
    test: Trace,
    operational: Histogram,
    indicator: Indicator = accuracy,
    *,
    network: Network | None = None,
    level: float = 0.95,
    resamples: int = 500,
    seed: int = 0,
) -> CountsEstimate:
    """An indicator in operation from a labelled test set and operational counts; about a second.

    `indicator` is `assay.accuracy`, `assay.recall(label)`, or any function of (labels, predictions). Bins
    come with the histogram. With `network`, its weights must be those the histogram was counted with.
    """
    if test.labels is None:
        raise MissingLabelsError("expected a test Trace with labels to estimate from, got one without")
    operational.check_usable(network)
    bins = operational.bins.cells(test)
    return counts_estimate(
        bins.numpy(),
        test.labels.numpy(),
        test.predictions.numpy(),
        operational,
        indicator,
        level=level,
        resamples=resamples,
        seed=seed,
    )


def counts_estimate(
    bins: Any,
    labels: Any,
    predictions: Any,
    operational: Histogram,
    indicator: Indicator,
    *,
    level: float,
    resamples: int,
    seed: int,
) -> CountsEstimate:
    """The same from the bins of the test points, (points, neurons), if they are already known."""
    check_level(level)
    if resamples < 2:
        raise InputError(f"expected at least 2 resamples, got {resamples}; 500 are usual")
    classes = int(labels.max()) + 1
    cells = GroupedCells.of(bins, labels, classes, operational.total)
    mixture = fitted_mixture(cells, operational)
    rng = np.random.default_rng(seed)
    drawn: IndicatorDraws
    if isinstance(indicator, RatioIndicator):
        drawn = ratio_draws(cells, mixture, operational, labels, predictions, indicator, resamples, rng)
    else:
        drawn = function_draws(cells, mixture, operational, labels, predictions, indicator, resamples, rng)
    sensitivity = drawn.sensitivity(level)
    lower, upper = drawn.interval(level) if sensitivity is None else sensitivity.range_at(1.0)
    worse = int((drawn.misfit >= mixture.misfit).sum())
    return CountsEstimate(
        name_of(indicator),
        drawn.value,
        lower,
        upper,
        level,
        drawn.unshaped,
        operational.total,
        len(bins),
        mixture.shares,
        (1 + worse) / (1 + len(drawn.misfit)),
        sensitivity,
    )
