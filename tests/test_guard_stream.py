"""Alarms over time: both policies against simulation and by hand."""

import numpy as np
import pytest
import torch

from assay import Guard
from assay.errors import InputError, NotFittedError
from assay.guard import Verdict
from assay.guard.alarm_stream import start_chance
from chosen_scores import fresh_guard, traced


@pytest.fixture(scope="module")
def guard():
    made = fresh_guard()
    return made.calibrate(traced(uniform(2000, 0)), 0.05)


def uniform(rows, seed):
    return torch.rand(rows, generator=torch.Generator().manual_seed(seed))


def verdict_of(alarm, scores=None):
    alarm = torch.as_tensor(alarm).bool()
    scores = alarm.double() if scores is None else scores
    return Verdict(torch.zeros(len(alarm), dtype=torch.long), scores, alarm)


def test_k_of_n_by_hand(guard):
    stream = guard.stream(k=2, of=3, quiet=2)
    seen = stream.update(verdict_of([0, 1, 0, 1, 0, 1, 0, 0, 0, 1]))
    assert seen.alarm.tolist() == [False, False, False, True, True, True, True, False, False, False]
    assert seen.started.nonzero().flatten().tolist() == [3]
    # How a stream is cut into calls makes no difference.
    stream.reset()
    parts = [stream.update(verdict_of([flag])) for flag in [0, 1, 0, 1, 0, 1, 0, 0, 0, 1]]
    assert torch.equal(torch.cat([part.alarm for part in parts]), seen.alarm)


def test_a_stream_judges_inputs_as_the_guard_does(guard):
    inputs = torch.rand(9, 2)
    seen = guard.stream(k=1, of=1, quiet=1)(inputs)
    assert torch.equal(seen.verdict.alarm, guard(inputs).alarm)
    assert torch.equal(seen.alarm, seen.verdict.alarm)


@pytest.mark.parametrize(("k", "of", "quiet"), [(1, 1, 1), (2, 3, 1), (2, 4, 3), (3, 5, 5)])
def test_k_of_n_starts_no_more_often_than_stated(guard, k, of, quiet):
    generator = np.random.default_rng(0)
    stream = guard.stream(k=k, of=of, quiet=quiet)
    alarm = generator.random(60_000) < 0.05
    share = float(stream.update(verdict_of(alarm)).started.double().mean())
    chance = start_chance(k, of, 0.05)
    # Starts are rare and nearly independent: four standard errors of a Poisson count.
    assert share < chance + 4 * (chance / 60_000) ** 0.5
    assert share > 0.5 * chance - 4 * (chance / 60_000) ** 0.5


def test_the_promise_says_how_often_a_false_alarm_starts(guard):
    assert guard.stream(k=3, of=5, rows_per_hour=3600).promise == (
        "on independent clean rows of which 0.05 raise the alarm, it starts in at most 1 of 1,427 rows, "
        "2.52 times an hour"
    )
    sentence = guard.stream(rows_per_hour=3600, false_alarms_per_hour=0.1, block=4).promise
    assert (
        "at most 0.1 false alarms an hour on average, at 3600 rows an hour of which blocks of 4" in sentence
    )


def test_the_sequential_test_keeps_its_rate_on_clean_rows(guard):
    # A rate of one false alarm in 500 rows, and 100 streams of 1,000 clean rows.
    stream = guard.stream(rows_per_hour=500, false_alarms_per_hour=1)
    starts = 0
    for seed in range(60):
        stream.reset()
        scores = uniform(1000, 100 + seed).double()
        starts += int(stream.update(verdict_of(scores > 0.95, scores)).started.sum())
    assert starts / 60 / 2 < 1


def test_the_sequential_test_finds_a_small_shift_that_k_of_n_does_not(guard):
    delays = {"k of n": [], "sequential": []}
    for seed in range(20):
        # The share of scores in the top tenth doubles: too little for three alarms of five.
        scores = torch.where(
            uniform(3000, seed) < 0.12, 0.9 + 0.05 * uniform(3000, seed + 500), uniform(3000, seed + 900)
        )
        for name, options in (
            ("k of n", {"k": 4, "of": 5}),
            ("sequential", {"rows_per_hour": 36_000, "false_alarms_per_hour": 1.0}),
        ):
            started = guard.stream(**options).update(verdict_of(scores > 0.95, scores.double())).started
            delays[name].append(int(started.double().argmax()) if started.any() else 3000)
    assert np.median(delays["sequential"]) < 1500 < np.median(delays["k of n"])


def test_a_stuck_fault_is_found_within_a_few_rows(guard):
    scores = torch.cat([uniform(300, 1), torch.full((50,), 2.0)]).double()
    for options in ({}, {"rows_per_hour": 36_000, "false_alarms_per_hour": 0.1}):
        seen = guard.stream(**options).update(verdict_of(scores > 0.95, scores))
        assert seen.alarm[300:306].any()
        assert seen.alarm[310:].all()
        assert not seen.alarm[:300].any()


def test_scores_that_are_not_finite_count_as_the_highest(guard):
    scores = torch.full((20,), torch.nan, dtype=torch.float64)
    stream = guard.stream(rows_per_hour=3600, false_alarms_per_hour=1)
    assert stream.update(verdict_of([True] * 20, scores)).alarm[-1]


def test_what_a_stream_needs_is_said(guard):
    for options in ({"k": 6}, {"k": 0}, {"quiet": 0}, {"block": 0}):
        with pytest.raises(InputError, match="1 <= k <= of"):
            guard.stream(**options)
    with pytest.raises(InputError, match="rows_per_hour beside"):
        guard.stream(false_alarms_per_hour=1)
    with pytest.raises(InputError, match="rows_per_hour above 0"):
        guard.stream(rows_per_hour=-1)
    own = Guard(guard.network, guard.monitor, threshold=0.5)
    with pytest.raises(NotFittedError, match="calibrate"):
        own.stream(rows_per_hour=10, false_alarms_per_hour=1)
    with pytest.raises(NotFittedError, match="promises no rate"):
        _ = own.stream().promise
    with pytest.raises(NotFittedError):
        Guard(guard.network, guard.monitor).stream()
