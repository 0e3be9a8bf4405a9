"""Thresholds over groups keep their rate where rows of one group are alike."""

from functools import cache

import numpy as np
import pytest
import torch
from scipy.stats import binom

import assay
from assay.errors import InputError, UndecidedError
from assay.guard.group_threshold import group_threshold
from chosen_scores import fresh_guard, traced


def tracks(count, generator):
    """Scores and groups: tracks of 1 to 40 rows around a level of their own, long ones lower."""
    sizes = generator.integers(1, 41, count)
    levels = generator.normal(size=count) - sizes / 20
    groups = np.arange(count).repeat(sizes)
    return levels[groups] + 0.3 * generator.normal(size=len(groups)), groups


@cache
def new_tracks():
    return tracks(20_000, np.random.default_rng(99))


def new_rate(threshold):
    """The mean share of rows above the threshold over new tracks."""
    scores, groups = new_tracks()
    return (np.bincount(groups, scores > threshold) / np.bincount(groups)).mean()


def test_the_threshold_is_the_smallest_score_that_keeps_the_mean_share_by_brute_force():
    generator = np.random.default_rng(0)
    for rate in (0.1, 0.3):
        scores, groups = tracks(40, generator)
        found = group_threshold(torch.from_numpy(scores), torch.from_numpy(groups), rate, None)

        def kept(score, scores=scores, groups=groups, rate=rate):
            shares = [(scores[groups == group] > score).mean() for group in range(40)]
            return (sum(shares) + 1) / 41 <= rate

        assert found == min(score for score in scores if kept(score))


def test_with_one_row_per_group_it_is_the_conformal_threshold():
    guard = fresh_guard()
    scores = torch.rand(73, generator=torch.Generator().manual_seed(0))
    for rate in (0.05, 0.2):
        alone = guard.calibrate(traced(scores), rate).threshold
        assert guard.calibrate(traced(scores), rate, groups=np.arange(73)).threshold == alone


def test_the_rate_holds_over_new_groups_and_not_over_rows():
    generator = np.random.default_rng(1)
    over_groups, over_rows = [], []
    for _ in range(150):
        scores, groups = (torch.from_numpy(part) for part in tracks(60, generator))
        over_groups.append(new_rate(group_threshold(scores, groups, 0.1, None)))
        over_rows.append(new_rate(float(scores.quantile(0.9))))
    # Shares of a calibration set of 60 vary by about 0.035: a standard error of 0.003 over 150 sets.
    assert 0.07 < np.mean(over_groups) < 0.11
    assert np.mean(over_rows) > 0.13  # long tracks are lower, and rows count them more often


def test_with_a_level_the_mean_share_holds_for_most_calibration_sets():
    generator = np.random.default_rng(2)
    kept = []
    for _ in range(100):
        scores, groups = (torch.from_numpy(part) for part in tracks(150, generator))
        kept.append(new_rate(group_threshold(scores, groups, 0.1, 0.9)) <= 0.1)
    # Holds in at least 90 of 100 on average; fewer than 80 has a chance below 0.2 % even at 90.
    assert sum(kept) >= 80
    assert binom.cdf(79, 100, 0.9) < 0.002


def test_the_promise_is_stated_per_group():
    guard = fresh_guard()
    scores = torch.rand(400, generator=torch.Generator().manual_seed(0))
    groups = [f"track {row // 4}" for row in range(400)]
    promise = guard.calibrate(traced(scores), 0.05, groups=groups).calibration["promise"]
    assert promise.startswith("in a new group like the 100 calibrated on, at most 0.05 of the inputs raise")
    promise = guard.calibrate(traced(scores), 0.05, level=0.9).calibration["promise"]
    assert promise == (
        "of inputs like the 400 calibrated on, at most 0.05 raise the alarm, with probability 0.9 over "
        "calibration sets"
    )


def test_groups_survive_files(tmp_path):
    guard = fresh_guard()
    guard.calibrate(traced(torch.rand(400)), 0.1, groups=np.arange(400) // 4)
    assay.save(guard, tmp_path / "guard")
    assert assay.load(tmp_path / "guard", network=guard.network).calibration == guard.calibration


def test_too_few_groups_and_wrong_ones_are_refused():
    guard = fresh_guard()
    scores = torch.rand(400)
    with pytest.raises(UndecidedError, match="in 10 groups"):
        guard.calibrate(traced(scores), 0.05, groups=np.arange(400) // 40)
    with pytest.raises(InputError, match="each of 400 rows"):
        guard.calibrate(traced(scores), 0.05, groups=[1, 2])
    with pytest.raises(InputError, match="per_class or groups"):
        guard.calibrate(traced(scores), 0.05, groups=np.arange(400), per_class=True)
