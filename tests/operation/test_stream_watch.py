"""All watches of a stream have one life: asked for state and alarm, kept in a file, resumed from there."""

import numpy as np
import pytest
import torch
from torch import nn

from assay import DriftWatch, Guard, Network, VolatilityWatch, Watch
from assay.errors import InputError, NotFittedError
from assay.monitors import Energy
from assay.volatility.stream_watch import HISTORY


def probabilities(count, seed):
    return np.random.default_rng(seed).dirichlet((9.0, 0.5, 0.3), size=count)


def certain(count, seed):
    return np.tile([[1.0, 0.0, 0.0]], (count, 1))


def alarms(count, seed, rate=0.05):
    return np.random.default_rng(seed).random(count) < rate


def every_row(count, seed):
    return np.ones(count, bool)


def volatility_watch(seed=0, **settings):
    return VolatilityWatch(50, **settings).calibrate(probabilities(500, seed), resamples=20)


def drift_watch(seed=0, **settings):
    return DriftWatch(**settings).calibrate(alarms(500, seed))


BOTH = pytest.mark.parametrize(
    ("build", "clean", "changed"),
    [(volatility_watch, probabilities, certain), (drift_watch, alarms, every_row)],
)


@BOTH
def test_a_kept_watch_is_resumed_as_if_nothing_had_happened(build, clean, changed, tmp_path):
    whole, first, second = build(), build(), build()
    assert not second.resume(tmp_path / "watch")
    whole.update(clean(330, 1))
    first.update(clean(330, 1))
    first.keep(tmp_path / "watch")
    assert second.resume(tmp_path / "watch")
    assert second.update(changed(400, 2)) == whole.update(changed(400, 2))
    assert second.to_frame().equals(whole.to_frame())
    assert second.fingerprint == whole.fingerprint


@BOTH
def test_another_reference_or_setting_is_refused_and_nothing_is_taken_up(build, clean, changed, tmp_path):
    other = build(seed=7)
    other.update(clean(300, 1))
    other.keep(tmp_path / "watch")
    for watch in (build(), build(seed=7, false_alarm_rate=0.2), build(seed=7, block=2)):
        with pytest.raises(InputError, match="got another clean reference; continue with the same settings"):
            watch.resume(tmp_path / "watch")
        assert watch.rows_ == 0


@BOTH
def test_the_alarm_stays_until_the_watch_is_reset(build, clean, changed):
    watch = build()
    watch.update(clean(1000, 1))
    assert not watch.alarm
    watch.update(changed(1000, 2))
    assert watch.alarm
    watch.update(clean(1000, 3))
    assert watch.alarm
    before = watch.fingerprint
    assert not watch.reset().alarm
    assert (watch.rows_, len(watch.to_frame())) == (0, 0)
    assert watch.fingerprint == before


@BOTH
def test_the_history_is_bounded(build, clean, changed):
    watch = build()
    watch.update(clean((HISTORY + 5) * 100, 1))
    assert len(watch.to_frame()) == HISTORY
    assert watch.to_frame()["row"].iloc[-1] == (HISTORY + 5) * 100


@pytest.mark.parametrize("watch", [VolatilityWatch(), DriftWatch()], ids=lambda watch: watch.title)
def test_a_watch_that_is_not_calibrated_has_no_state(watch):
    with pytest.raises(NotFittedError, match="call calibrate"):
        watch.alarm  # noqa: B018


def test_a_watched_guard_raises_the_alarm_of_its_watches():
    torch.manual_seed(0)
    network = Network(nn.Linear(4, 3), layers=())
    inputs = torch.randn(600, 4, generator=torch.Generator().manual_seed(0))
    trace = network.observe(inputs)
    guard = Guard(network, Energy().fit(trace)).calibrate(trace, 0.1)
    watched = Watch(guard, drift=DriftWatch().calibrate(guard.judge(trace).alarm))
    watched(inputs[:300])
    assert not watched.alarm
    watched(1000 * inputs[:300])
    watched(torch.full((300, 4), torch.nan))
    assert watched.alarm
    assert not Watch(guard).alarm
