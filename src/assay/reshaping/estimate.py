"""An indicator in operation: estimated on the kept points, and bounded by all that fits the histograms."""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from assay.errors import InputError
from assay.reshaping.array_types import Floats
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


@storable("IndicatorEstimate")
@dataclass(frozen=True)
class IndicatorEstimate:
    """An indicator in operation, estimated in three ways from the same histograms.

    `value` with `lower` and `upper`: on the kept points (the paper's estimate), with a bootstrap interval at
    `level` that covers chance and the lean towards the old test set that epsilon allows. `weighted`: by
    entropy balancing, worth `effective_size` equally weighted points. `range_lower`, `range_upper`: the least
    and greatest value over all weightings of the test points whose portions lie within epsilon of operation,
    proven up to rounding; None if the indicator is not a ratio of sums. `unshaped`: on the whole test set.
    """

    title = "Indicator in operation"

    name: str
    value: float
    lower: float
    upper: float
    level: float
    kept: int
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
        if not self.lower <= self.weighted <= self.upper:
            sentences.append(
                f"The weighted estimate ({self.weighted:.4f}) lies outside the interval of the kept points."
            )
        if self.weighted_similarity > self.epsilon * 1.05:
            sentences.append(
                f"With weights, portions still differ by {self.weighted_similarity:.4f} (allowed: "
                f"{self.epsilon:g})."
            )
        if self.range_lower is not None and self.range_upper is not None:
            span, interval = self.range_upper - self.range_lower, self.upper - self.lower
            if span > max(2 * interval, 0.01):
                sentences.append(
                    "Other weightings fit the histograms equally well and differ by more than the interval: "
                    f"a safety case should assume the worst, {self.range_lower:.4f}."
                )
        return sentences

    def summary(self) -> str:
        """The estimate, how certain it is, and what contradicts it."""
        text = (
            f"In operation, {self.name} is estimated at {self.value:.4f} ({self.level:.0%} interval "
            f"{self.lower:.4f} to {self.upper:.4f}, from {self.kept:,} kept points); on the whole test set "
            f"it was {self.unshaped:.4f}, and with weights it is {self.weighted:.4f} (worth "
            f"{self.effective_size:,.0f} equally weighted points). "
        )
        if self.range_lower is not None and self.range_upper is not None:
            text += (
                f"Everything that fits the histograms lies between {self.range_lower:.4f} and "
                f"{self.range_upper:.4f}. "
            )
        return text + (" ".join(self.disagreements) or "The estimates agree.")

    @tabled
    def to_frame(self) -> pd.DataFrame:
        """A row per way of estimating: method, value, lower, upper, points."""
        rows: list[tuple[str, float, float | None, float | None, float | None]] = [
            ("whole test set", self.unshaped, None, None, None),
            ("kept points", self.value, self.lower, self.upper, float(self.kept)),
            ("entropy balancing", self.weighted, None, None, self.effective_size),
            ("all weightings within epsilon", math.nan, self.range_lower, self.range_upper, None),
        ]
        return pd.DataFrame(rows, columns=["method", "value", "lower", "upper", "points"]).astype(
            dict.fromkeys(("value", "lower", "upper", "points"), float)
        )

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
    level: float,
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
    lower, upper = percentile_interval(found.draws, level)
    return IndicatorEstimate(
        name_of(indicator),
        found.value,
        min(lower, found.value),
        max(upper, found.value),
        level,
        len(points.kept),
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
