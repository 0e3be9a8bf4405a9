"""Spearman's rank correlation, with an interval and a p-value that hold for few pairs."""

import math
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from assay.statistics.intervals import normal_interval

Array = NDArray[np.float64]

_EXACT = 7
"""Pairs up to which all orders are tried: 5,040."""

_PERMUTATIONS = 10_000


@dataclass(frozen=True)
class RankCorrelation:
    """Spearman's correlation, its interval and the permutation test's p-value; NaN where there is none."""

    value: float
    lower: float
    upper: float
    p_value: float


def rank_correlation(
    first: ArrayLike, second: ArrayLike, *, level: float = 0.95, seed: int = 0
) -> RankCorrelation:
    """Spearman's correlation of at least four pairs; NaN for fewer, or where one side is constant.

    The interval is Fisher's z with the variance of Bonett and Wright 2000, (1 + r^2 / 2) / (n - 3). Perfect
    agreement of few pairs would make it collapse, so r is taken as at most 1 - 1/n^2 there. The p-value is
    that of the permutation test, exact up to seven pairs.
    """
    one, other = np.asarray(first, float), np.asarray(second, float)
    count = len(one)
    if count < 4 or len(set(one)) == 1 or len(set(other)) == 1:
        return RankCorrelation(math.nan, math.nan, math.nan, math.nan)
    one, other = _unit_ranks(one), _unit_ranks(other)
    value = float(one @ other)
    near = float(np.clip(value, -1 + 1 / count**2, 1 - 1 / count**2))
    error = math.sqrt((1 + near**2 / 2) / (count - 3))
    lower, upper = np.tanh(normal_interval(math.atanh(near), error, level)).tolist()
    return RankCorrelation(value, min(lower, value), max(upper, value), _permutation_p(one, other, seed))


def _unit_ranks(values: Array) -> Array:
    """Ranks about their mean, as a vector of length 1: the product of two is Spearman's correlation."""
    ranks = rankdata(values) - (len(values) + 1) / 2
    return np.asarray(ranks / np.linalg.norm(ranks))


def _permutation_p(first: Array, second: Array, seed: int) -> float:
    if len(first) <= _EXACT:
        orders = np.array(list(permutations(first)))
    else:
        orders = np.random.default_rng(seed).permuted(np.tile(first, (_PERMUTATIONS - 1, 1)), axis=1)
        orders = np.vstack([first, orders])
    # Correlations that tie with the one found may differ from it by rounding.
    return float((np.abs(orders @ second) >= abs(first @ second) - 1e-9).mean())
