"""The incremental window against the metric computed afresh."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.volatility import rolling
from assay.volatility.certainty import central_mean
from assay.volatility.rolling import CentralZone, RollingVolatility, Zone

# Few distinct values, zero among them, so that ties and borders are met often.
certainties = st.lists(st.sampled_from([0.0, 1e-12, 0.1, 0.2, 0.25, 0.5, 0.75, 0.999, 1.0]), max_size=60)


@settings(max_examples=150)
@given(certainties, st.integers(5, 25))
def test_after_every_row_the_value_is_that_of_the_rows_in_the_window(values, window):
    held = RollingVolatility(window)
    for count in range(1, len(values) + 1):
        held.extend(values[count - 1 : count])
        recent = np.sort(values[max(0, count - window) : count])
        if len(recent) < 5:
            assert np.isnan(held.log_vc)
        else:
            # The sum is kept to 2^-96 and read as a double; the other side sums doubles.
            assert held.log_vc == pytest.approx(np.log(central_mean(recent)), abs=1e-9)


def test_short_lists_split_and_vanish_without_a_trace(monkeypatch):
    monkeypatch.setattr(rolling, "_LOAD", 4)
    values = np.random.default_rng(0).uniform(size=600)
    held = RollingVolatility(150)
    held.extend(values.tolist())
    assert held.log_vc == pytest.approx(np.log(central_mean(np.sort(values[-150:]))), abs=1e-12)
    assert max(map(len, held.central.lists)) <= 8


def test_no_rounding_is_left_behind_by_rows_that_have_left():
    generator = np.random.default_rng(0)
    held = RollingVolatility(50)
    held.extend(10.0 ** generator.uniform(-12, 0, 5000))
    last = generator.uniform(0.999, 1, 50)
    held.extend(last.tolist())
    fresh = RollingVolatility(50, last.tolist())
    assert held.central.total == fresh.central.total  # whole numbers: equal, not close


@settings(max_examples=100)
@given(certainties.filter(len), st.randoms(use_true_random=False))
def test_a_zone_is_a_sorted_list(values, random):
    zone = Zone()
    for value in values:
        zone.add(value)
    assert [value for part in zone.lists for value in part] == sorted(values)
    rest = sorted(values)
    while rest:
        gone = random.choice(rest)
        zone.remove(gone)
        rest.remove(gone)
        assert [value for part in zone.lists for value in part] == rest
        assert zone.size == len(rest)
    assert CentralZone().total == 0
