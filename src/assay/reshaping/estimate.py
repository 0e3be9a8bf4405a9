"""An indicator in operation: by label shift, on the kept points, and by all that fits the histograms."""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from assay.errors import InputError
from assay.notebook import Shown
from assay.reshaping.array_types import Floats
from assay.reshaping.counts_estimate import CountsEstimate
from assay.reshaping.indicator import Indicator, RatioIndicator, name_of
from assay.reshaping.indicator_bootstrap import KeptPoints, Resampling, bootstrap_function, bootstrap_ratio
from assay.reshaping.occupied_bins import OccupiedBins
from assay.reshaping.solver import Patterns, SubsetProblem, certificate, distinct, solved
from assay.reshaping.weighting import balanced
from assay.statistics.intervals import percentile_interval
from assay.storage import storable
from assay.table import tabled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_FUNCTION_RESAMPLES = 200  # an indicator of your own may be slow
WEIGHTED_RESAMPLES = 50


LABEL_SHIFT, KEPT = "label shift", "kept"
METHODS = (LABEL_SHIFT, KEPT)


@storable("IndicatorEstimate", version=2)
@dataclass(frozen=True)
class IndicatorEstimate(Shown):
    """An indicator in operation, estimated in several ways from the same histograms.

    `value` with `lower` and `upper` at `level` are those of `method`: "label shift" (class frequencies have
    changed and nothing else; details in `counts`), with ends for `gamma` if there is one, or "kept" (the
    paper's). `kept_value`, `kept_lower`, `kept_upper`: on the kept points, with a bootstrap interval that
    covers chance and the lean towards the old test set that epsilon allows. `weighted`: by entropy balancing,
    worth `effective_size` equally weighted points. `range_lower`, `range_upper`: the least and greatest value
    over all weightings of the test points whose portions lie within epsilon of operation, proven up to
    rounding; None if the indicator is not a ratio of sums. `unshaped`: on the whole test set.
    """

    title = "Indicator in operation"

    name: str
    method: str
    value: float
    lower: float
    upper: float
    level: float
    gamma: float | None
    counts: CountsEstimate
    kept: int
    kept_value: float
    kept_lower: float
    kept_upper: float
    unshaped: float
    weighted: float
    effective_size: float
    weighted_similarity: float
    epsilon: float
    range_lower: float | None
    range_upper: float | None

    @property
    def disagreements(self) -> list[str]:
        """One sentence for each way in which the estimates contradict one another."""
        sentences = []
        if not self.counts.lower <= self.kept_value <= self.counts.upper:
            sentences.append(
                f"The kept points say {self.kept_value:.4f}, outside the interval of label shift: they take "
                "errors to be as frequent within a pattern of bins as in the test set, which a change of "
                "class frequencies breaks."
            )
        if self.weighted_similarity > self.epsilon * 1.05:
            sentences.append(
                f"With weights, portions still differ by {self.weighted_similarity:.4f} (allowed: "
                f"{self.epsilon:g})."
            )
        return sentences

    def summary(self) -> str:
        """The estimate, how certain it is, and what contradicts it."""
        text = (
            f"{self.counts.summary()} On the {self.kept:,} kept points, the paper's estimate, it is "
            f"{self.kept_value:.4f} ({self.kept_lower:.4f} to {self.kept_upper:.4f}), and with weights "
            f"{self.weighted:.4f} (worth {self.effective_size:,.0f} equally weighted points). "
        )
        if self.range_lower is not None and self.range_upper is not None:
            text += (
                f"Without any assumption, everything that fits the histograms lies between "
                f"{self.range_lower:.4f} and {self.range_upper:.4f}. "
            )
        return (text + " ".join(self.disagreements)).strip()

    @tabled
    def to_frame(self) -> pd.DataFrame:
        """A row per way of estimating: method, value, lower, upper, points, and what it assumes."""
        counts, nan = self.counts, math.nan
        rows: list[tuple[str, float, float | None, float | None, float | None, str]] = [
            ("whole test set", self.unshaped, None, None, None, "nothing has changed"),
            (LABEL_SHIFT, counts.value, counts.lower, counts.upper, None, "only class frequencies changed"),
        ]
        if counts.sensitivity is not None:
            gamma = self.gamma or 2.0
            ends = counts.range_at(gamma)
            words = f"and odds of errors within a class, by a factor up to {gamma:g}"
            rows.append((f"label shift, gamma {gamma:g}", nan, *ends, None, words))
        same = "same errors within a pattern of bins"
        rows += [
            ("kept points", self.kept_value, self.kept_lower, self.kept_upper, float(self.kept), same),
            ("entropy balancing", self.weighted, None, None, self.effective_size, same),
            ("all weightings within epsilon", nan, self.range_lower, self.range_upper, None, "nothing"),
        ]
        columns = ["method", "value", "lower", "upper", "points", "assumes"]
        return pd.DataFrame(rows, columns=columns).astype(
            dict.fromkeys(("value", "lower", "upper", "points"), float)
        )

    def facts(self) -> dict[str, Any]:
        """Every number, as plain values for machines."""
        own = {name: value for name, value in vars(self).items() if name != "counts"}
        return own | {"label_shift": self.counts.facts()}

    def plot(self) -> "Figure":
        """The estimates and their intervals, one above the other."""
        from assay.reshaping.figures import estimate_figure

        return estimate_figure(self.to_frame(), self.name)


def estimated(
    bins: OccupiedBins,
    total: int,
    epsilon: float,
    kept: NDArray[np.bool_],
    labels: Tensor,
    predictions: Tensor,
    indicator: Indicator,
    *,
    counts: CountsEstimate,
    method: str,
    gamma: float | None,
    resampling: Resampling,
    time_limit: float,
) -> IndicatorEstimate:
    """Every estimate of the indicator from these kept points and these histograms."""
    problem, member = bins.problem(total, epsilon)
    weighting = balanced(problem)
    weights = (weighting.weights / problem.multiplicity)[member]
    points = _TestPoints(bins, problem, np.flatnonzero(kept), weights, labels, predictions)
    if isinstance(indicator, RatioIndicator):
        found = _ratio_values(indicator, points, resampling, time_limit)
    else:
        found = _function_values(indicator, points, resampling)
    lower, upper = percentile_interval(found.draws, counts.level)
    on_kept = found.value, min(lower, found.value), max(upper, found.value)
    ends = (counts.lower, counts.upper) if gamma is None else counts.range_at(gamma)
    return IndicatorEstimate(
        name_of(indicator),
        method,
        *(on_kept if method == KEPT else (counts.value, *ends)),
        counts.level,
        gamma,
        counts,
        len(points.kept),
        *on_kept,
        found.unshaped,
        found.weighted,
        float(1 / (weights**2).sum()),  # Kish: as informative as so many points of equal weight
        weighting.similarity,
        epsilon,
        *found.range,
    )


@dataclass(frozen=True, eq=False)
class _TestPoints:
    """The test points: which are kept, what each weighs, and the histograms they are to match."""

    bins: OccupiedBins
    problem: SubsetProblem
    kept: NDArray[np.int64]
    weights: Floats
    labels: Tensor
    predictions: Tensor

    def kept_points(self) -> KeptPoints:
        target = self.problem.target
        return KeptPoints(self.bins.patterns.take(self.kept), target.portions, target.total)


@dataclass(frozen=True, eq=False)
class _IndicatorValues:
    """An indicator on the kept, all and weighted points; its resamples and its range."""

    value: float
    unshaped: float
    weighted: float
    draws: Floats
    range: tuple[float | None, float | None] = (None, None)


def _ratio_values(
    indicator: RatioIndicator, points: _TestPoints, resampling: Resampling, time_limit: float
) -> _IndicatorValues:
    numerator, denominator = indicator.parts(points.labels, points.predictions)
    top, bottom = numerator[points.kept], denominator[points.kept]
    if not bottom.any():
        raise InputError(
            f"expected kept points that count for the {indicator.name}, got none; use a larger epsilon"
        )
    return _IndicatorValues(
        value=float(top.sum() / bottom.sum()),
        unshaped=float(numerator.sum() / denominator.sum()),
        weighted=float(points.weights @ numerator / (points.weights @ denominator)),
        draws=bootstrap_ratio(points.kept_points(), top, bottom, resampling),
        range=indicator_range(points.bins.patterns, points.problem, numerator, denominator, time_limit),
    )


def _function_values(indicator: Any, points: _TestPoints, resampling: Resampling) -> _IndicatorValues:
    labels, predictions = points.labels[points.kept], points.predictions[points.kept]
    fewer = replace(resampling, resamples=min(resampling.resamples, MOST_FUNCTION_RESAMPLES))
    draws = bootstrap_function(points.kept_points(), labels, predictions, indicator, fewer)
    return _IndicatorValues(
        value=float(indicator(labels, predictions)),
        unshaped=float(indicator(points.labels, points.predictions)),
        weighted=_weighted_function(points, indicator, resampling.rng),
        draws=draws,
    )


def indicator_range(
    patterns: Patterns, problem: SubsetProblem, numerator: Floats, denominator: Floats, time_limit: float
) -> tuple[float, float]:
    """Least and greatest ratio over all weightings within epsilon: two linear programs, and their proofs."""
    # Points of one pattern that add different amounts become different columns.
    _, amounts = np.unique(np.stack([numerator, denominator]), axis=1, return_inverse=True)
    wider = Patterns(
        np.concatenate([patterns.codes, amounts.reshape(1, -1).astype(patterns.codes.dtype)]),
        (*patterns.sizes, int(amounts.max()) + 1),
    )
    columns, multiplicity, member = distinct(wider)
    first = np.empty(columns.points, np.int64)
    first[member[::-1]] = np.arange(len(member))[::-1]
    split = SubsetProblem(
        Patterns(np.ascontiguousarray(columns.codes[:-1]), patterns.sizes),
        multiplicity,
        np.zeros(patterns.cells, np.int64),
        0,
        problem.target,
    )
    top, bottom = numerator[first], denominator[first]
    found = solved(split, "range", time_limit, numerator=top, denominator=bottom)

    def proven(name: str, sign: float) -> float:
        if name not in found:
            return -np.inf
        return certificate.least_ratio(split, sign * top, bottom, found[name]["multipliers"])

    # A ratio of sums is never beyond the ratios of its own terms.
    ratios = top[bottom > 0] / bottom[bottom > 0]
    return max(proven("least", 1.0), float(ratios.min())), min(-proven("most", -1.0), float(ratios.max()))


def _weighted_function(points: _TestPoints, indicator: Any, rng: np.random.Generator) -> float:
    """The mean over resamples drawn by weight, for indicators without a weighted form of their own."""
    weights, values = points.weights, []
    for _ in range(WEIGHTED_RESAMPLES):
        rows = rng.choice(len(weights), len(weights), p=weights / weights.sum())
        values.append(float(indicator(points.labels[rows], points.predictions[rows])))
    return float(np.mean(values))
