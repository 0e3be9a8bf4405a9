"""What the resamples of a fitted mixture say about an indicator: its value, interval and sensitivity."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.stats import beta

from assay.errors import InputError
from assay.reshaping.array_types import Floats, Integers
from assay.reshaping.grouped_cells import GroupedCells
from assay.reshaping.histogram import Histogram
from assay.reshaping.indicator import RatioIndicator
from assay.reshaping.mixture import Mixture
from assay.reshaping.mixture_bootstrap import MixtureDraws, mixture_draws
from assay.reshaping.sensitivity import GAMMAS, Sensitivity, tilted

MOST_FUNCTION_RESAMPLES = 200  # an indicator of your own may be slow
VALUE_DRAWS = 50


@dataclass(frozen=True, eq=False)
class IndicatorDraws:
    """The value, on the whole test set too, and `errors`: estimate minus realised value, per resample."""

    value: float
    unshaped: float
    errors: Floats
    misfit: Floats
    rates: "_Rates | None" = None

    def interval(self, level: float) -> tuple[float, float]:
        """The basic bootstrap interval of the realised value."""
        return _interval(self.value, self.errors, level)

    def sensitivity(self, level: float) -> Sensitivity | None:
        """The interval for every gamma, if the indicator is a share of hits within classes."""
        if self.rates is None:
            return None
        ends = [
            (self.rates.interval(gamma, level)[0], self.rates.interval(1 / gamma, level)[1])
            for gamma in GAMMAS
        ]
        lowers, uppers = np.array(ends).T
        return Sensitivity(np.minimum.accumulate(lowers), np.maximum.accumulate(uppers))


@dataclass(frozen=True, eq=False)
class _Rates:
    """Shares of hits per group: fitted, in every resample of the test set, and realised in operation.

    `counted` is 1 for groups that count. Where no point of a group, or every one, is a hit, half a point of
    either kind is imagined before its odds are changed, so that no error among few is not taken for none.
    """

    shares: Floats
    rates: Floats
    counted: Floats
    sizes: Integers
    draws: MixtureDraws

    def interval(self, gamma: float, level: float) -> tuple[float, float]:
        """Of the realised value, where the odds of a miss are gamma times those of the test set."""
        drawn = self.draws
        changed, again = self._tilted(self.rates, gamma), self._tilted(drawn.means[:, :, 0], gamma)
        value, estimates = self._ratio(self.shares, changed), self._ratio(drawn.shares, again)
        chance = drawn.realised[:, :, 0] - drawn.realised_shares * self.rates
        spread = np.sqrt((changed * (1 - changed)) / np.maximum(self.rates * (1 - self.rates), 1e-12))
        spread = np.where((self.rates > 0) & (self.rates < 1), spread, 1.0)
        hits = (drawn.realised_shares * changed + chance * spread) * self.counted
        realised = _over(hits.sum(axis=1), (drawn.realised_shares * self.counted).sum(axis=1))
        lower, upper = _interval(float(value), estimates - realised, level)
        return self._beyond_all_hits(lower, upper, gamma, level)

    def _ratio(self, shares: Floats, rates: Floats) -> Floats:
        weights = shares * self.counted
        return _over((weights * rates).sum(axis=-1), weights.sum(axis=-1))

    def _tilted(self, rates: Floats, gamma: float) -> Floats:
        smooth = (rates * self.sizes + 0.5) / (self.sizes + 1)
        return np.clip(rates + tilted(smooth, gamma) - smooth, 0.0, 1.0)

    def _beyond_all_hits(self, lower: float, upper: float, gamma: float, level: float) -> tuple[float, float]:
        """No error among so many points is compatible with some (Clopper and Pearson)."""
        used = (self.shares * self.counted > 0) & (self.sizes > 0)
        weights = (self.shares * self.counted)[used]
        if not len(weights) or not (np.ptp(self.rates[used]) == 0 and self.rates[used][0] in (0.0, 1.0)):
            return lower, upper
        points = float(weights.sum() ** 2 / (weights**2 / self.sizes[used]).sum())
        limit = beta.ppf((1 - level) / 2, points, 1)
        if self.rates[used][0]:
            return min(lower, float(tilted(limit, gamma))), upper
        return lower, max(upper, float(tilted(1 - limit, gamma)))


def ratio_draws(
    cells: GroupedCells,
    mixture: Mixture,
    operational: Histogram,
    labels: Any,
    predictions: Any,
    indicator: RatioIndicator,
    resamples: int,
    rng: np.random.Generator,
) -> IndicatorDraws:
    """For a ratio of sums over points."""
    numerator, denominator = indicator.parts(labels, predictions)
    if not denominator.any():
        raise InputError(f"expected test points that count for the {indicator.name}, got none")
    drawn = mixture_draws(
        cells, mixture, operational, np.stack([numerator, denominator], axis=1), resamples, rng
    )
    means = np.stack([cells.group_means(amount) for amount in (numerator, denominator)], axis=1)
    value = _value(mixture.shares, means, indicator)
    estimates = np.einsum("bg,bga->ba", drawn.shares, drawn.means)
    realised = drawn.realised.sum(axis=1)
    errors = _over(estimates[:, 0], estimates[:, 1]) - _over(realised[:, 0], realised[:, 1])
    rates = None
    if np.isin(means[:, 1], (0.0, 1.0)).all() and set(np.unique(numerator)) <= {0.0, 1.0}:
        rates = _Rates(mixture.shares, means[:, 0], means[:, 1], cells.sizes, drawn)
    return IndicatorDraws(value, float(numerator.sum() / denominator.sum()), errors, drawn.misfit, rates)


def function_draws(
    cells: GroupedCells,
    mixture: Mixture,
    operational: Histogram,
    labels: Any,
    predictions: Any,
    indicator: Callable[..., float],
    resamples: int,
    rng: np.random.Generator,
) -> IndicatorDraws:
    """For any function of (labels, predictions): rows are drawn by the shares of each resample."""
    resamples = min(resamples, MOST_FUNCTION_RESAMPLES)
    drawn = mixture_draws(cells, mixture, operational, np.empty((len(labels), 0)), resamples, rng)
    truth, guess = torch.as_tensor(labels), torch.as_tensor(predictions)

    def value(shares: Floats, rows: int) -> float:
        chosen = _rows_by_shares(cells, shares, rows, rng)
        return float(indicator(truth[chosen], guess[chosen]))

    points, inputs = len(truth), operational.total
    estimate = float(np.mean([value(mixture.shares, points) for _ in range(VALUE_DRAWS)]))
    errors = np.array(
        [
            value(shares, points) - value(realised, inputs)
            for shares, realised in zip(drawn.shares, drawn.realised_shares, strict=True)
        ]
    )
    return IndicatorDraws(estimate, float(indicator(truth, guess)), errors, drawn.misfit)


def _rows_by_shares(cells: GroupedCells, shares: Floats, rows: int, rng: np.random.Generator) -> Integers:
    numbers = rng.multinomial(rows, np.asarray(shares) / np.sum(shares))
    parts = [
        rng.choice(own, number)
        for own, number in zip(cells.rows, numbers, strict=True)
        if number and len(own)
    ]
    return np.concatenate(parts).astype(np.int64)


def _value(shares: Floats, means: Floats, indicator: RatioIndicator) -> float:
    top, bottom = shares @ means
    if not bottom > 0:
        raise InputError(
            f"expected classes in operation that count for the {indicator.name}, but the counts fit none"
        )
    return float(top / bottom)


def _over(top: Floats, bottom: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(top / bottom)


def _interval(value: float, errors: Floats, level: float) -> tuple[float, float]:
    """Resamples in which nothing counted say nothing; if most are such, neither does the interval."""
    known = errors[np.isfinite(errors)]
    if 2 * len(known) < len(errors):
        return 0.0, 1.0
    ends = value - np.quantile(known, [(1 + level) / 2, (1 - level) / 2])
    lower, upper = np.clip(ends, 0.0, 1.0).tolist()
    return min(lower, value), max(upper, value)
