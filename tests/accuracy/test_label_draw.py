"""Rows to label: exact probabilities on small sets, what the draw prefers, its forms and its errors."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats.qmc import Sobol

import assay
from assay.accuracy import RowsToLabel, rows_to_label
from assay.accuracy.label_draw import DOUBT_SHARE, inclusion_probabilities, places_drawn
from assay.errors import InputError

GUESSES = st.lists(st.floats(0, 1), min_size=2, max_size=9)


@given(GUESSES, st.integers(1, 8))
def test_probabilities_add_up_to_the_budget(guesses, budget):
    budget = min(budget, len(guesses))
    probabilities = inclusion_probabilities(np.array(guesses), budget)
    assert probabilities.sum() == pytest.approx(budget)
    assert 0 < probabilities.min() <= probabilities.max() <= 1


@given(GUESSES, st.integers(1, 8), st.integers(0, 10**6))
def test_no_row_is_drawn_twice(guesses, budget, seed):
    budget = min(budget, len(guesses))
    probabilities = inclusion_probabilities(np.array(guesses), budget)
    places = places_drawn(probabilities, np.random.default_rng(seed).uniform(size=budget))
    assert len(set(places.tolist())) == budget
    assert places.tolist() == sorted(places)


@pytest.mark.parametrize(
    "probabilities",
    [[0.3, 0.4, 0.3], [0.7, 0.6, 0.7], [0.5] * 6, [0.9, 0.9, 0.2, 1.0], [0.05, 0.8, 0.8, 0.35], [1.0, 1.0]],
)
def test_each_row_is_drawn_with_its_probability(probabilities):
    """Over a grid of chances that fills the cube evenly; so the weighted mean is unbiased for any labels."""
    probabilities = np.array(probabilities)
    grid = Sobol(round(probabilities.sum()), scramble=False).random_base2(12)
    drawn = np.mean([np.isin(np.arange(len(probabilities)), places_drawn(probabilities, u)) for u in grid], 0)
    np.testing.assert_allclose(drawn, probabilities, atol=0.004)
    right = np.arange(len(probabilities)) % 2
    assert (drawn / probabilities) @ right == pytest.approx(right.sum(), abs=0.1)


def test_doubt_is_drawn_more_often_and_no_weight_explodes():
    guesses = np.repeat([0.5, 1.0], [100, 900])
    probabilities = inclusion_probabilities(guesses, 50)
    assert probabilities[0] / probabilities[-1] == pytest.approx((0.9 / 1000 + 0.1 / 100) / (0.9 / 1000))
    assert (50 / 1000) / probabilities.min() == pytest.approx(1 / (1 - DOUBT_SHARE))
    np.testing.assert_allclose(inclusion_probabilities(np.array([0.0, 1.0, 1.0]), 2), 2 / 3)


def logits(count=200, seed=0):
    return torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))


def test_the_result_is_small_and_can_be_kept(tmp_path):
    drawn = rows_to_label(assay.Trace(logits()), 20, seed=3)
    assert isinstance(drawn, RowsToLabel)
    assert len(drawn) == len(set(drawn.rows.tolist())) == 20
    assert drawn.rows.tolist() == sorted(drawn.rows)
    frame = drawn.to_frame()
    assert list(frame.columns) == ["row", "probability", "guess"]
    confidence = assay.Trace(logits()).probabilities.amax(dim=1)
    np.testing.assert_allclose(frame["guess"], confidence[drawn.rows])
    assert "Label these 20 of 200 rows" in drawn.summary()
    assert drawn.plot().axes
    assay.save(drawn, tmp_path / "rows")
    back = assay.load(tmp_path / "rows")
    np.testing.assert_array_equal(back.rows, drawn.rows)
    np.testing.assert_array_equal(back.probabilities, drawn.probabilities)
    again = rows_to_label(assay.Trace(logits()).probabilities, 20, seed=3)
    np.testing.assert_array_equal(again.rows, drawn.rows)
    assert rows_to_label(assay.Trace(logits()), 20, seed=4).rows.tolist() != drawn.rows.tolist()


def test_the_sample_has_its_share_of_every_guess():
    trace = assay.Trace(logits(1000))
    drawn = rows_to_label(trace, 100, guesses=np.linspace(0, 1, 1000))
    # In steps of one over the cumulated probabilities: never more than one row from where it should be.
    probabilities = inclusion_probabilities(np.linspace(0, 1, 1000), 100)
    for place in range(1, 1000, 37):
        assert abs((drawn.rows < place).sum() - probabilities[:place].sum()) <= 1


def test_all_rows_or_one():
    trace = assay.Trace(logits(7))
    everything = rows_to_label(trace, 7)
    assert everything.rows.tolist() == list(range(7))
    np.testing.assert_allclose(everything.probabilities, 1.0)
    assert len(rows_to_label(trace, 1)) == 1


def test_wrong_use_is_one_sentence():
    trace = assay.Trace(logits(10))
    for budget in (0, 11):
        with pytest.raises(InputError, match="a budget of 1 to 10 rows"):
            rows_to_label(trace, budget)
    with pytest.raises(InputError, match="10 guesses, one per row"):
        rows_to_label(trace, 3, guesses=[0.5] * 9)
    with pytest.raises(InputError, match="guesses from 0 to 1"):
        rows_to_label(trace, 3, guesses=[float("nan")] * 10)
    with pytest.raises(InputError, match="guesses from 0 to 1"):
        rows_to_label(trace, 3, guesses=[1.5] * 10)
    with pytest.raises(InputError, match="NaN"):
        rows_to_label(torch.full((10, 3), float("nan")), 3)
