"""Surprisal against fifty digits, and against the one distribution whose answer everybody knows."""

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, kstest

from assay.mira import surprisal


def exact(statistic, dimensions):
    with mpmath.workdps(50):
        a, x = mpmath.mpf(dimensions) / 2, mpmath.mpf(statistic) / 2
        below = mpmath.gammainc(a, 0, x, regularized=True)
        above = mpmath.gammainc(a, x, mpmath.inf, regularized=True)
        return float(-mpmath.log1p(-below) if below < 0.5 else -mpmath.log(above))


@pytest.mark.parametrize("dimensions", [1, 2, 3, 10, 64, 127, 512, 768, 1024])
def test_surprisal_agrees_with_fifty_digits_from_0_to_a_million(dimensions):
    d = dimensions
    statistics = [
        0,
        1e-6,
        0.01,
        0.5,
        d / 2,
        0.9 * d,
        d,
        1.1 * d,
        2 * d,
        3 * d,
        5 * d,
        1300,
        1500,
        1e4,
        1e5,
        1e6,
    ]
    expected = np.array([exact(statistic, d) for statistic in statistics])
    # 3e-13 was the worst measured; the rounding of the statistic alone costs up to 1e-13 in the far tail.
    assert surprisal(statistics, d) == pytest.approx(expected, rel=2e-12, abs=1e-300)


@settings(max_examples=60)
@given(dimensions=st.integers(1, 1024), ratio=st.floats(0.3, 6))
def test_nothing_jumps_where_one_form_gives_way_to_the_next(dimensions, ratio):
    assert float(surprisal(ratio * dimensions, dimensions)) == pytest.approx(
        exact(ratio * dimensions, dimensions), rel=2e-12, abs=1e-300
    )


def test_two_dimensions_have_a_closed_form():
    statistic = np.concatenate([[0.0], np.geomspace(1e-8, 1e6, 200)])
    assert surprisal(statistic, 2) == pytest.approx(statistic / 2, rel=1e-12)


def test_scipy_gives_up_where_surprisal_does_not():
    assert chi2.logsf(3000, 512) == -np.inf
    assert float(surprisal(3000.0, 512)) == pytest.approx(796.655, abs=5e-4)


def test_gaussian_rows_have_exponential_surprisal_with_mean_one_in_every_dimension():
    for dimensions in (1, 16, 300):
        drawn = np.random.default_rng(0).chisquare(dimensions, 20_000)
        values = surprisal(drawn, dimensions)
        assert values.mean() == pytest.approx(1, abs=4 / np.sqrt(20_000))  # four standard errors
        assert kstest(values, "expon").pvalue > 1e-3


def test_infinity_stays_infinite_and_nan_stays_nan():
    assert surprisal([np.inf, np.nan], 3).tolist()[0] == np.inf
    assert np.isnan(surprisal([np.inf, np.nan], 3)[1])
