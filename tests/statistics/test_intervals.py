"""Intervals against closed forms, and against how often they should cover."""

import numpy as np
import pytest
from scipy.stats import norm

from assay.errors import InputError
from assay.statistics import check_level, normal_interval, percentile_interval, wilson_interval


@pytest.mark.parametrize(("count", "total", "level"), [(0, 10, 0.95), (3, 10, 0.9), (50, 50, 0.99)])
def test_wilson_is_the_closed_form(count, total, level):
    z, share = norm.ppf((1 + level) / 2), count / total
    middle = (share + z**2 / (2 * total)) / (1 + z**2 / total)
    reach = z / (1 + z**2 / total) * np.sqrt(share * (1 - share) / total + z**2 / (4 * total**2))
    assert wilson_interval(count, total, level) == pytest.approx((middle - reach, middle + reach), abs=1e-12)


def test_the_normal_interval_holds_the_level_and_is_cut_to_what_is_possible():
    lower, upper = normal_interval(2.0, 0.5, 0.8)
    assert norm(2.0, 0.5).cdf(upper) - norm(2.0, 0.5).cdf(lower) == pytest.approx(0.8)
    assert upper - 2.0 == pytest.approx(2.0 - lower)
    assert normal_interval(0.5, 1.0, smallest=0.0, largest=1.0) == (0.0, 1.0)
    # A value beyond the range has its interval there, too.
    assert normal_interval(1.5, 0.1, smallest=0.0, largest=1.0) == (1.0, 1.0)


def test_percentiles_of_normal_draws_are_those_of_the_normal_distribution():
    draws = np.random.default_rng(0).normal(size=40_000)
    # Standard error of such a quantile: sqrt(0.95 * 0.05 / n) / density = 0.011.
    assert percentile_interval(draws, 0.9) == pytest.approx((norm.ppf(0.05), norm.ppf(0.95)), abs=0.04)


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0, float("nan")])
def test_a_level_is_a_probability(level):
    with pytest.raises(InputError, match="level between 0 and 1"):
        check_level(level)
