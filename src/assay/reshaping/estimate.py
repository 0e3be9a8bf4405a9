"""What the kept points, and everything else that fits the same histograms, say about an indicator."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from assay.errors import InputError
from assay.reshaping.array_types import Floats
from assay.reshaping.indicator import Indicator, RatioIndicator, name_of
from assay.reshaping.indicator_bootstrap import bootstrap_function, bootstrap_ratio
from assay.reshaping.occupied_bins import OccupiedBins
from assay.reshaping.solver import Patterns, SubsetProblem, certificate, distinct, solved
from assay.reshaping.weighting import balanced
from assay.storage import storable
from assay.table import tabled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESAMPLES = 50


@storable("IndicatorEstimate")
@dataclass(frozen=True)
class IndicatorEstimate:
    """One indicator out there, estimated in three ways from the same histograms.

    `value` with `lower` and `upper`: on the kept points (the paper's estimate), with a bootstrap interval
    that covers chance and the lean towards the old test set that epsilon allows.
    `weighted`: by entropy balancing, from an `effective_size` of points. `range_lower`, `range_upper`: the
    least and greatest value over all weightings of the test points whose portions lie within epsilon of
    operation, proven up to rounding; None where the indicator is not a ratio of sums. `unshaped`: on the
    whole test set.
    """

    title = "Indicator out there"

    name: str
    value: float
    lower: float
    upper: float
    confidence: float
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
        """Each way in which the estimates contradict one another, as a sentence."""
        said = []
        if not self.lower <= self.weighted <= self.upper:
            said.append(
                f"The weighted estimate ({self.weighted:.4f}) lies outside the interval of the kept points."
            )
        if self.weighted_similarity > self.epsilon * 1.05:
            said.append(
                f"The weights match operation only within {self.weighted_similarity:.4f}, not "
                f"{self.epsilon:g}."
            )
        if self.range_lower is not None and self.range_upper is not None:
            span, interval = self.range_upper - self.range_lower, self.upper - self.lower
            if span > max(2 * interval, 0.01):
                said.append(
                    "Other weightings fit the histograms equally well and differ by more than the interval: "
                    f"a safety case should take {self.range_lower:.4f} as the worst."
                )
        return said

    def summary(self) -> str:
        """The estimate, how sure it is, and what contradicts it."""
        text = (
            f"Out there, {self.name} is estimated at {self.value:.4f} ({self.confidence:.0%} interval "
            f"{self.lower:.4f} to {self.upper:.4f}, from {self.kept:,} kept points); on the whole "
            "test set it was "
            f"{self.unshaped:.4f}, and with weights it is {self.weighted:.4f} (worth "
            f"{self.effective_size:,.0f} "
            "equally weighted points). "
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
    table: OccupiedBins,
    total: int,
    epsilon: float,
    kept: NDArray[np.bool_],
    labels: Tensor,
    predictions: Tensor,
    indicator: Indicator,
    *,
    confidence: float,
    replicates: int,
    seed: int,
    time_limit: float,
    engine: str = "here",
) -> IndicatorEstimate:
    """All of it; see `IndicatorEstimate`."""
    problem, member = table.problem(total, epsilon)
    weighting = balanced(problem)
    weights = (weighting.weights / problem.multiplicity)[member]
    points = _Points(table, problem, np.flatnonzero(kept), weights, labels, predictions, total)
    resampling = _Resampling(replicates, np.random.default_rng(seed), engine)
    if isinstance(indicator, RatioIndicator):
        answers = _of_ratio(indicator, points, resampling, time_limit)
    else:
        answers = _of_function(indicator, points, resampling)
    tail = (1 - confidence) / 2
    lower, upper = (float(end) for end in np.quantile(answers.draws, [tail, 1 - tail]))
    return IndicatorEstimate(
        name_of(indicator),
        answers.value,
        min(lower, answers.value),
        max(upper, answers.value),
        confidence,
        len(points.kept),
        answers.unshaped,
        answers.weighted,
        float(1 / (weights**2).sum()),
        weighting.similarity,
        epsilon,
        *answers.span,
    )


@dataclass(frozen=True)
class _Points:
    """The test points: which are kept, what each weighs, and the histograms they are to match."""

    table: OccupiedBins
    problem: SubsetProblem
    kept: NDArray[np.int64]
    weights: Floats
    labels: Tensor
    predictions: Tensor
    operational: int

    @property
    def chosen(self) -> Patterns:
        return self.table.patterns.take(self.kept)

    @property
    def portions(self) -> Floats:
        return self.problem.target.portions


@dataclass(frozen=True)
class _Resampling:
    replicates: int
    rng: np.random.Generator
    engine: str


@dataclass(frozen=True)
class _Answers:
    """What an indicator says of the kept points, of all of them, of the weighted ones; its replicates."""

    value: float
    unshaped: float
    weighted: float
    draws: Floats
    span: tuple[float | None, float | None] = (None, None)


def _of_ratio(
    indicator: RatioIndicator, points: _Points, resampling: _Resampling, time_limit: float
) -> _Answers:
    numerator, denominator = indicator.parts(points.labels, points.predictions)
    top, bottom = numerator[points.kept], denominator[points.kept]
    if not bottom.any():
        raise InputError(f"expected kept points that count for the {indicator.name}, got none")
    draws = bootstrap_ratio(
        points.chosen,
        top,
        bottom,
        points.portions,
        points.operational,
        resampling.replicates,
        resampling.rng,
        resampling.engine,
    )
    return _Answers(
        value=float(top.sum() / bottom.sum()),
        unshaped=float(numerator.sum() / denominator.sum()),
        weighted=float(points.weights @ numerator / (points.weights @ denominator)),
        draws=draws,
        span=indicator_range(points.table.patterns, points.problem, numerator, denominator, time_limit),
    )


def _of_function(indicator: Any, points: _Points, resampling: _Resampling) -> _Answers:
    labels, predictions = points.labels[points.kept], points.predictions[points.kept]
    draws = bootstrap_function(
        points.chosen,
        labels,
        predictions,
        indicator,
        points.portions,
        points.operational,
        min(resampling.replicates, 200),
        resampling.rng,
        resampling.engine,
    )
    return _Answers(
        value=float(indicator(labels, predictions)),
        unshaped=float(indicator(points.labels, points.predictions)),
        weighted=_weighted_function(
            points.labels, points.predictions, points.weights, indicator, resampling.rng
        ),
        draws=draws,
    )


def indicator_range(
    patterns: Patterns, problem: SubsetProblem, numerator: Floats, denominator: Floats, time_limit: float
) -> tuple[float, float]:
    """Least and greatest ratio over all weightings within epsilon: two linear programs, and their proofs."""
    _, outcome = np.unique(np.stack([numerator, denominator]), axis=1, return_inverse=True)
    kinds = int(outcome.max()) + 1
    wider = Patterns(
        np.concatenate([patterns.codes, outcome.reshape(1, -1).astype(patterns.codes.dtype)]),
        (*patterns.sizes, kinds),
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


def _weighted_function(
    labels: Tensor, predictions: Tensor, weights: Floats, indicator: Any, rng: np.random.Generator
) -> float:
    """The mean over resamples drawn by weight, for indicators without a weighted form of their own."""
    values = []
    for _ in range(RESAMPLES):
        rows = rng.choice(len(weights), len(weights), p=weights / weights.sum())
        values.append(float(indicator(labels[rows], predictions[rows])))
    return float(np.mean(values))
