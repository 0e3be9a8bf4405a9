"""Rows to label: exact probabilities, by listing every sample of small sets; what the draw prefers."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import assay
from assay.accuracy import RowsToLabel, rows_to_label
from assay.accuracy.label_draw import DOUBT_SHARE, inclusion_probabilities, systematic_places
from assay.errors import InputError


def every_sample(probabilities):
    """(chance, places) of all samples that a random start can give."""
    cuts = np.unique(np.concatenate([[0.0, 1.0], np.cumsum(probabilities) % 1]))
    for first, last in zip(cuts[:-1], cuts[1:], strict=True):
        if last - first > 1e-9:
            yield last - first, systematic_places(probabilities, (first + last) / 2)


GUESSES = st.lists(st.floats(0, 1), min_size=2, max_size=9)


@given(GUESSES, st.integers(1, 8))
def test_each_row_is_drawn_with_its_probability(guesses, budget):
    guesses = np.sort(np.array(guesses))
    budget = min(budget, len(guesses))
    probabilities = inclusion_probabilities(guesses, budget)
    assert probabilities.sum() == pytest.approx(budget)
    assert 0 < probabilities.min() <= probabilities.max() <= 1
    drawn = np.zeros(len(guesses))
    for chance, places in every_sample(probabilities):
        assert len(set(places)) == budget
        drawn[places] += chance
    np.testing.assert_allclose(drawn, probabilities, atol=1e-8)


@given(GUESSES, st.integers(1, 8), st.integers(0, 511), st.floats(0, 1))
def test_the_weighted_correction_is_unbiased(guesses, budget, pattern, power):
    """Mean guess plus the Horvitz-Thompson mean of what it is off by: exact over all samples."""
    guesses = np.sort(np.array(guesses))
    right = np.array([pattern >> place & 1 for place in range(len(guesses))], float)
    probabilities = inclusion_probabilities(guesses, min(budget, len(guesses)))
    off = (right - power * guesses) / probabilities / len(guesses)
    mean = sum(chance * off[places].sum() for chance, places in every_sample(probabilities))
    assert power * guesses.mean() + mean == pytest.approx(right.mean(), abs=1e-7)


def test_doubt_is_drawn_more_often_and_no_weight_explodes():
    guesses = np.repeat([0.5, 1.0], [100, 900])
    probabilities = inclusion_probabilities(guesses, 50)
    assert probabilities[0] / probabilities[-1] == pytest.approx((0.75 / 1000 + 0.25 / 100) / (0.75 / 1000))
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
