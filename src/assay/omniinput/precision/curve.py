"""PrecisionRecall: how often a model is right where it is confident, threshold by threshold."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from assay.notebook import Shown
from assay.omniinput.annotation.audit import AuditSummary
from assay.omniinput.precision.area import whole_area
from assay.omniinput.sampling.convergence import Reason
from assay.omniinput.sampling.distribution import Samples
from assay.storage import storable
from assay.table import tabled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]


@storable("PrecisionRecall")
@dataclass(frozen=True, eq=False)
class PrecisionRecall(Shown):
    """Paper Eqs. 3 and 4 and appendix A over the bins that were judged, most confident first.

    Inputs count as positives up to the edge `threshold` (confident="low") or from it on ("high").
    `log_recall` is the natural log of the share of all inputs that are positives and right: recall up to an
    unknown constant, the number of right inputs. `*_resamples` are bootstrap resamples over time blocks of
    the sampler, items and annotators together, (2, resamples, bins), for lower and upper limits. A point is
    `trusted` if the bin it adds passed the sampler's checks. `audit` is how a judge did by people's measure,
    if they corrected one; `items` are then those they judged.
    """

    title: ClassVar[str] = "Precision and recall over the input space"

    confident: str
    bins: NDArray[np.int64]
    threshold: Array
    log_density: Array
    bin_precision: Array
    bin_resamples: Array
    precision: Array
    precision_resamples: Array
    log_recall: Array
    log_recall_resamples: Array
    log_false_positive: Array
    items: NDArray[np.int64]
    trusted: NDArray[np.bool_]
    annotators: tuple[str, ...]
    examples: Samples
    example_scores: Array
    log_size: float
    values: int
    shape: tuple[int, ...]
    normalisation: str
    output_name: str
    left_out: int = 0
    reasons: tuple[Reason, ...] = ()
    level: float = 0.95
    audit: AuditSummary | None = None

    @property
    def aupr(self) -> float:
        """The area under precision over log-recall (nats), from the first recall above zero to the last."""
        return whole_area(self.log_recall, self.precision)

    @property
    def aupr_interval(self) -> tuple[float, float]:
        limits = zip(self.log_recall_resamples, self.precision_resamples, strict=True)
        areas = np.array([[whole_area(*one) for one in zip(*limit, strict=True)] for limit in limits])
        lower, upper = interval(np.array(self.aupr), areas, self.level)
        return float(lower), float(upper)

    @property
    def auroc(self) -> float:
        """The chance that the model is more confident about a right input than about a wrong one.

        Both are drawn from the judged bins; inputs of one bin count as equally confident. NaN if every input
        is right, or none.
        """
        log_right, log_wrong = _bin_logs(self.log_density, self.bin_precision)
        if not (np.isfinite(log_right).any() and np.isfinite(log_wrong).any()):
            return math.nan
        right, wrong = (np.exp(logs - np.logaddexp.reduce(logs)) for logs in (log_right, log_wrong))
        before = np.concatenate([[0.0], np.cumsum(right)[:-1]])
        return float(wrong @ (before + right / 2))

    @property
    def log_right(self) -> float:
        """The natural log of how many inputs the model is rightly confident about, over the whole curve."""
        return float(self.log_recall[-1]) + self.log_size

    @property
    def log_wrong(self) -> float:
        """The natural log of how many inputs the model is wrongly confident about, over the whole curve."""
        return float(self.log_false_positive[-1]) + self.log_size

    @tabled
    def roc(self) -> pd.DataFrame:
        """Appendix A: true and false positives up to constants, as natural logs of shares of all inputs."""
        return pd.DataFrame(
            {
                "threshold": self.threshold,
                "log_true_positive": self.log_recall,
                "log_false_positive": self.log_false_positive,
            }
        )

    @tabled
    def to_frame(self) -> pd.DataFrame:
        """A row per threshold, most confident first; r is the precision of the bin it adds (r(z))."""
        columns: dict[str, Any] = {"threshold": self.threshold}
        columns |= self._with_interval("precision", self.precision, self.precision_resamples)
        columns |= self._with_interval("log_recall", self.log_recall, self.log_recall_resamples)
        columns |= {"log_false_positive": self.log_false_positive, "bin": self.bins}
        columns |= self._with_interval("r", self.bin_precision, self.bin_resamples)
        columns |= {"items": self.items, "trusted": self.trusted}
        return pd.DataFrame(columns)

    def _with_interval(self, name: str, values: Array, resamples: Array) -> Mapping[str, Array]:
        lower, upper = interval(values, resamples, self.level)
        return {name: values, f"{name}_lower": lower, f"{name}_upper": upper}

    def summary(self) -> str:
        """How many inputs the model is confident about, how many of them wrongly, and how certain that is."""
        from assay.omniinput.precision.conclusion import summary

        return summary(self)

    def plot(self) -> "Figure":
        """Precision over log-recall with its band; untrusted points are hollow."""
        from assay.omniinput.precision.figures import curve_figure

        return curve_figure({"": self})

    def figures(self) -> "list[Figure]":
        """The curve, the precision of every bin, and judged inputs bin by bin."""
        from assay.omniinput.precision.figures import bins_figure, examples_figure

        examples = [examples_figure(self)] if len(self.example_scores) else []
        return [self.plot(), bins_figure(self), *examples]


def interval(values: Array, resamples: Array, level: float) -> tuple[Array, Array]:
    """Lower and upper limits from the resamples for each (first axis), extended to contain the value."""
    resamples = np.where(np.isnan(resamples), values, resamples)
    tail = (1 - level) / 2
    # "lower" and "higher" never interpolate, which between a number and minus infinity would give NaN.
    lower = np.quantile(resamples[0], tail, axis=0, method="lower")
    upper = np.quantile(resamples[1], 1 - tail, axis=0, method="higher")
    return np.fmin(lower, values), np.fmax(upper, values)


def cumulative(log_density: Array, bin_precision: Array) -> tuple[Array, Array, Array]:
    """Precision, log-recall and log false positives of bins in order of confidence (last axis).

    Eq. 3 has <= in the numerator and < in the denominator; <= is meant in both. All sums are in logarithms.
    """
    log_right, log_wrong = _bin_logs(log_density, bin_precision)
    log_recall = np.logaddexp.accumulate(log_right, axis=-1)
    log_positive = np.logaddexp.accumulate(log_density, axis=-1)
    with np.errstate(invalid="ignore"):
        precision = np.minimum(np.exp(log_recall - log_positive), 1.0)
    return precision, log_recall, np.logaddexp.accumulate(log_wrong, axis=-1)


def _bin_logs(log_density: Array, bin_precision: Array) -> tuple[Array, Array]:
    with np.errstate(divide="ignore"):
        return log_density + np.log(bin_precision), log_density + np.log1p(-bin_precision)
