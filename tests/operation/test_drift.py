"""The drift test keeps its promise on clean streams, also dependent ones, and finds changes of both kinds."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import binom

import assay
from assay import DriftWatch, VolatilityWatch
from assay.errors import InputError, NotFittedError
from assay.operation.drift import upper_limit
from assay.volatility.evidence import ROUND, SHARES


def alarms(rate, count, seed):
    return np.random.default_rng(seed).random(count) < rate


def certainties(count, seed, power=0.5):
    """Two-class probabilities whose margins are uniform to a power."""
    margins = np.random.default_rng(seed).random(count) ** power
    return np.stack([(1 + margins) / 2, (1 - margins) / 2], axis=1)


@pytest.mark.parametrize("mean", [0.0, 0.05, 0.5, 0.93])
def test_the_limit_solves_its_equation_and_covers_more_than_the_exact_one(mean):
    count, doubt = 200, 0.01
    limit = upper_limit(mean, count, doubt)
    entropy = sum(a * math.log(a / b) for a, b in ((mean, limit), (1 - mean, 1 - limit)) if a > 0)
    assert count * entropy == pytest.approx(-math.log(doubt), rel=1e-6)
    # Were the true rate at the limit, so few alarms would be rarer than the doubt allows.
    assert binom.cdf(round(mean * count), count, limit) <= doubt


def test_the_limit_holds_for_blocks_that_are_no_coin_flips():
    """Blocks whose shares are Beta distributed: the limit may miss their mean in at most 5 % of samples."""
    generator = np.random.default_rng(0)
    missed = [upper_limit(generator.beta(1, 9, 40).mean(), 40, 0.05) < 0.1 for _ in range(1000)]
    assert np.mean(missed) <= 0.05


def test_a_round_pays_what_the_formula_says():
    watch = DriftWatch(false_alarm_rate=0.08).calibrate(alarms(0.1, 500, 0))
    rate, doubt = float(alarms(0.1, 500, 0).mean()), 0.01
    stream = np.arange(ROUND) < 30
    state = watch.update(stream)
    up, down = upper_limit(rate, 500, doubt), upper_limit(1 - rate, 500, doubt)
    paid = [
        np.prod([1 - share + share * value / limit for value in values])
        for limit, values in ((up, stream), (down, ~stream))
        for share in SHARES
    ]
    # Half of the capital is staked in the first round, evenly; the other half is kept.
    assert state.evidence == pytest.approx(0.5 + 0.5 * np.mean(paid))
    assert state.alarm_rate == 0.3
    assert state.reference_alarm_rate == rate


def test_cutting_the_stream_makes_no_difference():
    stream, clean = alarms(0.2, 1234, 1), alarms(0.1, 500, 0)
    whole = DriftWatch(block=3).calibrate(clean)
    whole.update(stream)
    cut = DriftWatch(block=3).calibrate(clean)
    for part in np.split(stream, [1, 2, 400, 401, 1000]):
        cut.update(part)
    assert cut.to_frame().equals(whole.to_frame())
    assert cut.state_now() == whole.state_now()


def test_false_alarms_on_clean_streams_are_as_rare_as_promised():
    """200 clean samples, each with a fresh stream of 3,000 rows: at a rate of 0.2, at most 40 may sound; 1 in
    a thousand repetitions of a test that just kept its promise would see more than 57."""
    sounded = 0
    for seed in range(200):
        clean, stream = alarms(0.05, 400, [0, seed]), alarms(0.05, 3000, [1, seed])
        sounded += DriftWatch(false_alarm_rate=0.2).calibrate(clean).update(stream).alarm
    assert sounded <= 57


def dependent(count, seed, block=10):
    """Alarms that come in runs: all rows of a block share their state with high probability."""
    generator = np.random.default_rng(seed)
    bad = np.repeat(generator.random(count // block + 1) < 0.06, block)[:count]
    return bad & (generator.random(count) < 0.9)


def test_blocks_keep_the_promise_where_single_rows_would_break_it():
    """Frames of a video: alarms come in runs of ten."""
    sounded = {1: 0, 10: 0}
    for seed in range(30):
        clean, stream = dependent(3000, [0, seed]), dependent(20_000, [1, seed])
        for block in sounded:
            watch = DriftWatch(false_alarm_rate=0.1, block=block).calibrate(clean)
            sounded[block] += watch.update(stream).alarm
    assert sounded[10] <= 8  # of 30, at 0.1; more than 8 has a chance of 1 in 500
    assert sounded[1] > 2 * max(sounded[10], 4)


@pytest.mark.parametrize("rate", [0.15, 0.0])
def test_more_and_fewer_alarms_are_found(rate):
    watch = DriftWatch().calibrate(alarms(0.05, 4000, 0))
    assert not watch.update(alarms(0.05, 3000, 1)).alarm
    assert watch.update(alarms(rate, 4000, 2)).alarm


def test_volatility_alone_is_enough_and_its_share_of_doubt_is_paid():
    clean = certainties(4000, 0)
    quiet = alarms(0.05, 4000, 0)
    volatility = VolatilityWatch(500, false_alarm_rate=0.01).calibrate(clean)
    watch = DriftWatch(false_alarm_rate=0.01).calibrate(quiet)
    volatility.update(certainties(3000, 1))
    assert not watch.update(alarms(0.05, 3000, 1), volatility).alarm
    changed = certainties(6000, 2, power=2.0)
    volatility.update(changed)
    state = watch.update(alarms(0.05, 6000, 2), volatility)
    assert state.alarm
    capitals = watch.stakes_.log_capital, volatility.evidence_.log_evidence
    assert watch.log_evidence_ == pytest.approx(max(capitals) - math.log(2), abs=0.01)
    with pytest.raises(InputError, match=r"below 0\.015, got 0\.05"):
        watch.update(quiet, VolatilityWatch(500, false_alarm_rate=0.05).calibrate(clean))


def test_false_alarms_of_both_together_are_as_rare_as_promised():
    """25 clean samples and streams at a rate of 0.25: 14 or more alarms have a chance below 1 in 1,000."""
    sounded = 0
    for seed in range(25):
        clean, stream = certainties(1000, [2, seed]), certainties(3000, [3, seed])
        volatility = VolatilityWatch(250, false_alarm_rate=0.25).calibrate(clean, resamples=100)
        watch = DriftWatch(false_alarm_rate=0.25).calibrate(alarms(0.05, 1000, [4, seed]))
        for start in range(0, 3000, 250):
            volatility.update(stream[start : start + 250])
            state = watch.update(alarms(0.05, 250, [5, seed, start]), volatility)
        sounded += state.alarm
    assert sounded < 14


def test_a_saved_watch_goes_on(tmp_path):
    watch = DriftWatch(block=2).calibrate(alarms(0.05, 400, 0))
    watch.update(alarms(0.05, 777, 1))
    assay.save(watch, tmp_path / "drift.safetensors")
    back = assay.load(tmp_path / "drift.safetensors")
    more = alarms(0.3, 600, 2)
    assert back.update(more) == watch.update(more)
    assert back.to_frame().equals(watch.to_frame())


def test_a_report_section_can_be_made():
    watch = DriftWatch().calibrate(torch.from_numpy(alarms(0.05, 400, 0)))
    watch.update(torch.from_numpy(alarms(0.5, 1000, 1)))
    assert "Alarm: the stream has changed" in watch.summary()
    assert "at most 1.0%, ever" in watch.summary()
    assert len(watch.plot().axes) == 2
    assert watch.state_now().to_frame()["alarm"].tolist() == [True]


def test_bad_input_is_said():
    with pytest.raises(InputError, match="false_alarm_rate between 0 and 1"):
        DriftWatch(false_alarm_rate=0)
    with pytest.raises(InputError, match="block of at least 1"):
        DriftWatch(block=0)
    with pytest.raises(NotFittedError, match="calibrate"):
        DriftWatch().update(alarms(0.1, 5, 0))
    with pytest.raises(InputError, match="at least 20 clean blocks of 10 rows, got 10"):
        DriftWatch(block=10).calibrate(alarms(0.1, 100, 0))
    for wrong in (np.zeros((3, 2), bool), np.zeros(30), [0, 1] * 20):
        with pytest.raises(InputError, match=r"pass verdict\.alarm"):
            DriftWatch().calibrate(wrong)


def test_a_failed_calibration_leaves_the_watch_as_it_was(monkeypatch):
    watch = DriftWatch().calibrate(np.arange(200) % 10 == 0)
    before = watch.fingerprint
    assert DriftWatch().calibrate(np.arange(400) % 10 == 0).fingerprint != before  # the same rate, surer

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("assay.operation.drift.upper_limit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        watch.calibrate(np.arange(200) % 2 == 0)
    assert watch.fingerprint == before
