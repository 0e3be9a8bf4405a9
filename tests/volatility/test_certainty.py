"""The metric against hand computation, a plain transcription of Algorithm 1, and its invariances."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import assay
from assay.errors import InputError
from assay.volatility import local_volatilities, log_volatility
from assay.volatility.certainty import RESOLUTION, central, margins


def two_classes(certainties):
    """Rows whose top-two margins are exactly the given multiples of 2^-10."""
    return np.array([[0.5 + margin / 2, 0.5 - margin / 2] for margin in certainties])


def algorithm_1(probabilities, offset=1e-6):
    """Algorithm 1 of the paper, line by line, with ranks from one."""
    certainties = [0.0, *sorted(max(p) - sorted(p)[-2] for p in np.asarray(probabilities, float).tolist())]
    count = len(certainties) - 1
    total = sum(
        math.log(certainties[k + 1] / (certainties[k] + offset)) ** 2
        for k in range(1, count)
        if 0.2 * count <= k + 1e-9 and k - 1e-9 <= 0.8 * count
    )
    return total / (0.6 * count)


def test_ten_predictions_give_the_value_computed_by_hand():
    # Margins 2^-10 .. 2^-1, given out of order; Eq. 7 takes k = 2..8: seven ratios of 2, over 0.6 * 10.
    rows = two_classes([2.0**-k for k in (3, 1, 10, 5, 2, 9, 4, 8, 7, 6)])
    assert assay.volatility_in_certainty(rows, offset=0.0) == pytest.approx(
        7 * math.log(2) ** 2 / 6, rel=1e-12
    )
    with_offset = sum(math.log(2.0 ** (k - 10) / (2.0 ** (k - 11) + 1e-6)) ** 2 for k in range(2, 9)) / 6
    assert assay.volatility_in_certainty(rows) == pytest.approx(with_offset, rel=1e-12)


@pytest.mark.parametrize("count", [5, 6, 7, 8, 9, 10, 11, 99, 1000])
@pytest.mark.parametrize("classes", [2, 3, 10, 40])
def test_the_value_is_that_of_algorithm_1(count, classes):
    rows = np.random.default_rng(count).dirichlet(np.full(classes, 0.3), size=count)
    # Two ways to sum at most a thousand doubles.
    assert assay.volatility_in_certainty(rows) == pytest.approx(algorithm_1(rows), rel=1e-9)


def test_arrays_tensors_lists_and_traces_give_the_same():
    logits = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    trace = assay.Trace(logits)
    expected = assay.volatility_in_certainty(trace)
    assert assay.volatility_in_certainty(trace.probabilities) == expected
    assert assay.volatility_in_certainty(trace.probabilities.numpy()) == expected
    assert assay.volatility_in_certainty(trace.probabilities.tolist()) == expected
    assert log_volatility(trace) == pytest.approx(math.log(expected))
    # Single precision moves a margin by 1e-7 and so, at gaps of about 1e-2, the value in the fifth digit.
    assert assay.volatility_in_certainty(trace.probabilities.float()) == pytest.approx(expected, rel=1e-3)


def test_local_volatilities_are_all_neighbours_in_ascending_order():
    found = local_volatilities(two_classes([0.5, 0.125, 0.25]), offset=0.0)
    np.testing.assert_allclose(found, [math.log(2) ** 2] * 2, rtol=1e-12)


@settings(max_examples=50)
@given(st.lists(st.integers(1, 1000), min_size=5, max_size=40), st.integers(0, 2**32 - 1))
def test_order_of_rows_and_of_classes_does_not_matter(certainties, seed):
    rows = np.column_stack([two_classes([c / 2048 for c in certainties]), np.zeros(len(certainties))])
    generator = np.random.default_rng(seed)
    shuffled = generator.permutation(generator.permutation(rows, axis=0), axis=1)
    assert assay.volatility_in_certainty(shuffled) == assay.volatility_in_certainty(rows)


def test_without_offset_a_common_factor_of_all_margins_changes_nothing():
    certainties = np.random.default_rng(0).uniform(0.1, 0.9, 200)
    full, half = (
        assay.volatility_in_certainty(two_classes(c), offset=0.0) for c in (certainties, certainties / 2)
    )
    assert half == pytest.approx(full, rel=1e-9)


@pytest.mark.parametrize("count", range(5, 60))
def test_the_central_ranks_are_those_between_a_fifth_and_four_fifths(count):
    first, last = central(count)
    inside = [k for k in range(1, count) if 5 * k >= count and 5 * k <= 4 * count]
    assert list(range(first, last + 1)) == inside


def test_ties_add_the_offset_squared_and_no_more():
    assert assay.volatility_in_certainty(two_classes([0.5] * 10)) == pytest.approx(
        7 / 6 * math.log(0.5 / (0.5 + 1e-6)) ** 2, rel=1e-9
    )


def test_a_network_that_cannot_choose_is_finite_and_volatile():
    rows = np.full((10, 4), 0.25)
    assert assay.volatility_in_certainty(rows) == pytest.approx(7 / 6 * math.log(RESOLUTION / 1e-6) ** 2)
    assert math.isfinite(assay.volatility_in_certainty(rows, offset=0.0))


def test_margins_come_from_the_two_largest_whatever_the_number_of_classes():
    for classes in (2, 3, 32, 33, 200):
        rows = np.random.default_rng(classes).dirichlet(np.ones(classes), size=500)
        ordered = np.sort(rows, axis=1)
        np.testing.assert_array_equal(margins(rows), ordered[:, -1] - ordered[:, -2])


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (two_classes([0.1, 0.2, 0.3, 0.4]), "at least 5 predictions, got 4"),
        (np.ones((10, 1)), "at least two classes"),
        (np.ones((10, 2, 2)), "shape"),
        (np.array([[2.0, -1.0]] * 9), "softmax"),
        (np.array([[3.0, 4.0]] * 9), "softmax"),
        (np.array([[0.5, 0.5]] * 9 + [[np.nan, 0.5]]), "row 9 contains NaN"),
        (np.array([[np.inf, 0.5]] * 9), "infinity"),
        ("probabilities", "not a table of numbers"),
    ],
)
def test_what_is_no_table_of_probabilities_is_refused_with_a_sentence(rows, words):
    with pytest.raises(InputError, match=words):
        assay.volatility_in_certainty(rows)


def test_sixteen_bit_probabilities_are_taken():
    rows = torch.softmax(torch.randn(20, 10, generator=torch.Generator().manual_seed(0)), 1).half()
    assert assay.volatility_in_certainty(rows) > 0
