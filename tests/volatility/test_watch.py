"""The watch: its window, its reference, its alarm and its life across files."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import assay
from assay.errors import InputError, NotFittedError
from assay.volatility import CleanReference
from assay.volatility.certainty import margin, margins
from assay.volatility.probabilities import bad_rows
from assay.volatility.watch import BAD_ROWS, LESS_CERTAIN, MORE_CERTAIN


def clean(count, seed):
    return np.random.default_rng(seed).dirichlet((9.0, 0.5, 0.3), size=count)


def contaminated(count, seed, share=0.1):
    rows = clean(count, seed)
    lost = np.random.default_rng(seed + 1000).uniform(size=count) < share
    rows[lost] = np.random.default_rng(seed + 2000).dirichlet((1.0, 1.0, 1.0), size=int(lost.sum()))
    return rows


@pytest.fixture(scope="module")
def reference():
    return clean(3000, 0)


def test_the_state_holds_log_vc_of_the_last_window(reference):
    watch = assay.VolatilityWatch(window=100).calibrate(reference, resamples=50)
    rows = clean(357, 1)
    for start in range(0, 357, 40):
        state = watch.update(rows[start : start + 40])
    assert state.log_vc == pytest.approx(np.log(assay.volatility_in_certainty(rows[-100:])), abs=1e-9)
    assert (state.rows, state.window_rows, state.full) == (357, 100, True)


def test_before_the_window_is_full_the_state_says_so(reference):
    watch = assay.VolatilityWatch(window=100).calibrate(reference, resamples=50)
    assert np.isnan(watch.update(clean(4, 1)).log_vc)
    state = watch.update(clean(50, 2))
    assert not state.full
    assert np.isnan(state.p_value)
    assert "filling" in state.summary()
    assert "Alarm: rows that" in watch.update([[np.nan, 0.0, 0.0]]).summary()


def test_how_a_stream_is_cut_into_updates_makes_no_difference(reference):
    rows = contaminated(700, 3)
    whole = assay.VolatilityWatch(window=150).calibrate(reference, resamples=50)
    pieces = assay.VolatilityWatch(window=150).calibrate(reference, resamples=50)
    expected = whole.update(rows)
    for part in np.array_split(rows, [1, 2, 140, 151, 460, 461]):
        state = pieces.update(part)
    assert state == expected
    assert pieces.to_frame().equals(whole.to_frame())


@pytest.mark.parametrize(
    "form",
    [
        np.asarray,
        lambda row: row[None],
        np.float32,
        np.ndarray.tolist,
        torch.tensor,
        lambda row: [row.tolist()],
    ],
)
def test_row_by_row_in_any_form_is_the_same_as_all_at_once(reference, form):
    rows = contaminated(330, 3)
    rows[[7, 150]] = np.nan
    whole, single = (assay.VolatilityWatch(window=100).calibrate(reference, resamples=50) for _ in range(2))
    expected = whole.update(np.float32(rows) if form is np.float32 else rows)
    for row in rows:
        state = single.update(form(row))
    assert (state.log_vc, state.evidence, state.rows) == (expected.log_vc, expected.evidence, 328)
    assert single.bad_rows_ == 2
    assert single.to_frame().equals(whole.to_frame())


VALUES = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.5, -0.25, np.nan, np.inf, 1.0008, 1.00051]))


@given(st.lists(VALUES, min_size=3, max_size=3), st.sampled_from([np.float64, np.float32, np.float16]))
def test_a_single_margin_is_that_of_the_table_or_none(row, dtype):
    total = sum(row)
    for values in (row, [value / total for value in row] if 0 < total < np.inf else row):
        form = np.array(values, dtype)
        found = margin(form, 3)
        if found is not None:
            assert not bad_rows(form[None]).any()
            assert found == margins(form[None])[0]
        else:
            assert bad_rows(form[None])[0] or abs(form.astype(float).sum() - 1) > 4e-4


def test_what_is_no_plain_row_has_no_single_margin():
    forms = (
        [0, 1, 0],
        np.array([0, 1, 0]),
        [[0.5, 0.5, 0.0]],
        (0.5, 0.5, 0.0),
        "abc",
        np.array(0.5),
        [],
        None,
    )
    for form in (*forms, np.full((3, 3), 1 / 3), np.full(4, 0.25), torch.zeros(0), np.full(40, 1 / 40)):
        assert margin(form, 40 if np.size(form) == 40 else 3) is None


def test_a_watch_restored_in_mid_stream_goes_on_as_if_nothing_had_happened(reference, tmp_path):
    rows = contaminated(1000, 4, share=0.02)
    watch = assay.VolatilityWatch(window=150, block=3).calibrate(reference, resamples=50)
    watch.update(rows[:500])
    assay.save(watch, tmp_path / "watch")
    restored = assay.load(tmp_path / "watch")
    assert restored.update(rows[500:]) == watch.update(rows[500:])
    assert restored.to_frame().equals(watch.to_frame())


def test_ten_percent_contamination_sounds_the_alarm_and_clean_rows_do_not(reference):
    watch = assay.VolatilityWatch(window=500).calibrate(reference, resamples=200)
    assert not watch.update(clean(5000, 5)).alarm
    state = watch.update(contaminated(1000, 6))
    assert state.alarms == (LESS_CERTAIN,)
    assert watch.update(clean(500, 7)).alarm, "what was decided stays decided"
    assert not watch.reset().update(clean(500, 8)).alarm


def test_a_network_that_became_too_sure_sounds_the_alarm_too(reference):
    watch = assay.VolatilityWatch(window=200).calibrate(reference, resamples=200)
    assert watch.update(np.tile([[1.0, 0.0, 0.0]], (400, 1))).alarms == (MORE_CERTAIN,)


def test_a_bad_row_is_an_alarm_of_its_own_kind_and_the_watch_goes_on(reference):
    watch = assay.VolatilityWatch(window=100).calibrate(reference, resamples=50)
    good = clean(100, 9)
    watch.update(good)
    for bad in ([np.nan, 0.5, 0.5], [2.0, -1.0, 0.0], [5.0, 1.0, 0.2], [np.inf, 0.0, 0.0]):
        state = watch.update(bad)
        assert state.alarms == (BAD_ROWS,)
        assert (state.bad_rows, state.window_rows) == (1, 100)
    assert state.log_vc == pytest.approx(np.log(assay.volatility_in_certainty(good)), abs=1e-9)
    assert not watch.update(clean(10, 10)).alarm
    assert watch.bad_rows_ == 4
    assert "Alarm: rows that are not probabilities" in watch.summary(), "of all that was seen"


def test_rows_over_other_classes_are_bad_rows(reference):
    watch = assay.VolatilityWatch(window=100).calibrate(reference, resamples=50)
    assert watch.update(np.full((3, 4), 0.25)).bad_rows == 3
    assert watch.rows_ == 0


def test_where_all_clean_windows_are_alike_rounding_is_no_alarm():
    certain = np.tile([[1.0, 0.0, 0.0]], (2000, 1))
    watch = assay.VolatilityWatch(window=100).calibrate(certain, resamples=50)
    assert not watch.update(certain).alarm
    assert watch.to_frame()["p_value"].min() == 1.0


def test_a_watch_that_has_seen_nothing_can_be_saved(reference, tmp_path):
    for watch in (assay.VolatilityWatch(window=100), assay.VolatilityWatch(window=100).calibrate(reference)):
        assay.save(watch, tmp_path / "watch")
        assert len(assay.load(tmp_path / "watch").to_frame()) == 0


def test_wrong_use_is_one_sentence(reference):
    with pytest.raises(NotFittedError, match="calibrate"):
        assay.VolatilityWatch().update(reference)
    with pytest.raises(InputError, match="at least one window"):
        assay.VolatilityWatch(window=5000).calibrate(reference)
    with pytest.raises(InputError, match="window of at least 5"):
        assay.VolatilityWatch(window=4)
    with pytest.raises(InputError, match="between 0 and 1"):
        assay.VolatilityWatch(false_alarm_rate=0.0)
    with pytest.raises(InputError, match="softmax"):
        assay.VolatilityWatch(window=10).calibrate(torch.randn(100, 3))
    with pytest.raises(InputError, match="half a window"):
        assay.VolatilityWatch(window=10, block=6).calibrate(reference)


def test_the_reference_of_resampled_windows_is_that_of_fresh_windows():
    fresh = [np.log(assay.volatility_in_certainty(clean(200, 100 + seed))) for seed in range(400)]
    for count in (200, 300, 2000):
        found = [CleanReference.of(clean(count, 5000 + seed), 200, resamples=100) for seed in range(40)]
        # 400 fresh windows put the mean within 0.2 and the deviation within 0.15 of a deviation, at 3 sigma;
        # a resampled mean has the standard error it states, here averaged over 40 samples.
        error = np.std(fresh) * (0.15 + 3 * np.sqrt(200 / count / 40))
        assert np.mean([one.mean for one in found]) == pytest.approx(np.mean(fresh), abs=error)
        assert np.mean([one.deviation for one in found]) == pytest.approx(np.std(fresh), rel=0.15)


def test_blocks_widen_the_reference_of_a_stream_whose_neighbours_are_alike():
    rows = np.repeat(clean(300, 11), 10, axis=0) + 0.0
    rows = 0.98 * rows + 0.02 * clean(3000, 12)
    single, blocks = (CleanReference.of(rows, 300, block=block, resamples=300) for block in (1, 10))
    truth = [
        np.log(
            assay.volatility_in_certainty(
                0.98 * np.repeat(clean(30, 13 + seed), 10, axis=0) + 0.02 * clean(300, 900 + seed)
            )
        )
        for seed in range(200)
    ]
    assert abs(blocks.mean - np.mean(truth)) < abs(single.mean - np.mean(truth))
    assert blocks.deviation == pytest.approx(np.std(truth), rel=0.5)
    assert single.deviation < 0.7 * np.std(truth)
    np.testing.assert_array_equal(blocks.margins, np.sort(margins(rows)[::10]))


def test_a_watch_tells_its_story(reference):
    watch = assay.VolatilityWatch(window=100).calibrate(reference, resamples=50)
    watch.update(clean(350, 14))
    assert watch.to_frame()["row"].tolist() == [100, 200, 300]
    assert "350 predictions" in watch.summary()
    assert [axis.get_ylabel() for axis in watch.plot().axes] == [
        "volatility in certainty\n(natural log)",
        "evidence (log10)",
    ]
    assert watch.update(clean(1, 15)).to_frame()["rows"].tolist() == [351]


def test_a_failed_calibration_leaves_the_watch_as_it_was(monkeypatch):
    clean = np.random.default_rng(0).dirichlet(np.ones(3), 200)
    watch = assay.VolatilityWatch(50).calibrate(clean, resamples=20)
    before = watch.fingerprint

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("assay.volatility.watch.Evidence", interrupted)
    with pytest.raises(KeyboardInterrupt):
        watch.calibrate(np.random.default_rng(1).dirichlet(np.ones(4), 200), resamples=20)
    assert watch.fingerprint == before
    assert watch.classes_ == 3
