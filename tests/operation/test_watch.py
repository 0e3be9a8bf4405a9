"""A watched guard answers as the guard does, and its counts are those of all that it was asked."""

import threading

import numpy as np
import pytest
import torch
from torch import nn

import assay
from assay import Bins, DriftWatch, Guard, Histogram, Network, VolatilityWatch, Watch
from assay.errors import InputError, NotFittedError
from assay.monitors import ActivationPattern, Energy
from assay.operation.watch import COUNTED_TOGETHER

WINDOW = 50


def inputs(count, seed):
    return torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return Network(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)))


@pytest.fixture(scope="module")
def clean(network):
    rows = inputs(600, 1)
    labels = network.observe(rows).predictions
    labels[::7] = (labels[::7] + 1) % 3
    return network.observe((rows, labels))


@pytest.fixture(scope="module")
def guard(network, clean):
    return Guard(network, Energy().fit(clean[:300])).calibrate(clean[:300], 0.1)


@pytest.fixture
def bins(clean, network):
    return Bins.from_data(clean, width=0.5, network=network)


def watch_of(guard, clean, bins):
    return Watch(
        guard,
        bins,
        VolatilityWatch(WINDOW).calibrate(clean[300:], resamples=50),
        drift=DriftWatch().calibrate(guard.judge(clean[300:]).alarm),
        estimator=assay.AccuracyEstimator(window=WINDOW).fit(clean[300:]),
    )


def test_verdicts_are_the_guards_and_counts_are_of_all_rows(guard, clean, bins):
    watched = watch_of(guard, clean, bins)
    parts = [inputs(size, seed) for seed, size in enumerate([1, 3, 100, 1, 300, 37])]
    for part in parts:
        expected, verdict = guard(part), watched(part)
        assert torch.equal(verdict.alarm, expected.alarm)
        assert torch.equal(verdict.scores, expected.scores)
    rows = torch.cat(parts)
    state = watched.state_now()
    trace = guard.network.observe(rows)
    assert state.predictions == len(rows) == 442
    assert state.cancelled == int(guard(rows).alarm.sum())
    assert state.uncounted == 0
    assert np.array_equal(watched.histogram.counts, Histogram.of(trace, bins).counts)
    alone = VolatilityWatch(WINDOW).calibrate(clean[300:], resamples=50)
    assert state.volatility == alone.update(trace)
    drift = DriftWatch().calibrate(guard.judge(clean[300:]).alarm)
    assert state.drift.alarm_rate == drift.update(guard(rows).alarm).alarm_rate
    estimator = assay.AccuracyEstimator(window=WINDOW).fit(clean[300:])
    last = estimator.estimate(estimator.count(trace[350:400]))  # the last full window of 442 rows
    assert state.estimates.to_frame().equals(last.to_frame())


def test_what_is_not_counted_does_not_stop_the_guard(guard, network, clean):
    tight = Bins(origin=0.0, width=1.0, last=0, network=network.fingerprint)  # features above 1 have no place
    watched = Watch(guard, tight)
    rows = inputs(40, 3)
    rows[3] = torch.nan
    assert watched(rows).alarm[3]
    features = network.observe(rows, allow_nonfinite=True).layer("penultimate")
    fits = (features <= 1).all(dim=1)
    assert 0 < fits.sum() < 39
    assert watched.histogram.total == int(fits.sum())
    assert watched.state_now().uncounted == 40 - int(fits.sum())


def test_threads_lose_nothing_and_mix_nothing(guard, clean, bins):
    watched = watch_of(guard, clean, bins)
    parts = [inputs(size, seed) for seed, size in enumerate(range(1, 41))]
    expected = [guard(part).scores for part in parts]
    wrong = []

    def ask(offset):
        for place in range(offset, 40, 4):
            for _ in range(5):
                if not torch.equal(watched(parts[place]).scores, expected[place]):
                    wrong.append(place)

    threads = [threading.Thread(target=ask, args=(offset,)) for offset in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert watched.state_now().predictions == 5 * sum(range(1, 41)) == watched.state_now().volatility.rows
    single = Histogram.of(guard.network.observe(torch.cat(parts)), bins)
    assert np.array_equal(watched.histogram.counts, 5 * single.counts)


def test_kept_counts_are_taken_up_as_if_nothing_had_happened(guard, clean, bins, tmp_path):
    path = tmp_path / "counts.safetensors"
    whole, first = watch_of(guard, clean, bins), watch_of(guard, clean, bins)
    assert not first.resume(path)
    before, after = inputs(130, 5), inputs(170, 6)
    whole(before), first(before)
    first.keep(path)
    second = watch_of(guard, clean, bins)
    assert second.resume(path)
    assert second.state_now().volatility == first.state_now().volatility
    whole(after), second(after)
    one, other = whole.state_now(), second.state_now()
    assert (one.predictions, one.cancelled) == (other.predictions, other.cancelled)
    assert one.volatility == other.volatility
    assert one.drift == other.drift
    assert np.array_equal(whole.histogram.counts, second.histogram.counts)
    record = assay.load(path)
    assert record.histogram.total == 130
    assert record.counts.rows == 100  # two full windows


def test_rows_are_counted_in_time(guard, bins):
    watched = Watch(guard, bins)
    for _ in range(COUNTED_TOGETHER - 1):
        watched(inputs(1, 0))
    assert watched._histogram is None  # held back
    watched(inputs(1, 0))
    assert watched._histogram.total == COUNTED_TOGETHER
    assert watched._pending_rows == 0


def test_an_exported_guard_is_watched_alike(guard, clean, bins, tmp_path):
    guard.export(tmp_path / "guard.onnx", features=True)
    exported = assay.OnnxGuard(tmp_path / "guard.onnx")
    ours, theirs = watch_of(guard, clean, bins), Watch(exported, bins)
    rows = inputs(60, 8)
    assert torch.equal(ours(rows).alarm, theirs(rows).alarm)
    assert np.abs(ours.histogram.counts - theirs.histogram.counts).sum() <= 4  # rounding at a bin's edge
    ours.keep(tmp_path / "counts")
    assert theirs.resume(tmp_path / "counts")
    assert theirs.state_now().predictions == 120
    guard.export(tmp_path / "plain.onnx")
    with pytest.raises(InputError, match="features=True"):
        Watch(assay.OnnxGuard(tmp_path / "plain.onnx"), bins)


def test_bad_input_is_said(guard, network, clean, bins, tmp_path):
    with pytest.raises(InputError, match="expected a Guard"):
        Watch(network)
    with pytest.raises(NotFittedError, match="calibrate"):
        Watch(Guard(network, guard.monitor))
    with pytest.raises(InputError, match=r"features of \['conv'\]"):
        Watch(guard, Bins(layer="conv"))
    with pytest.raises(InputError, match="bins made for the guard's network"):
        Watch(guard, Bins(network="another"))
    with pytest.raises(InputError, match="pass bins"):
        Watch(guard).histogram  # noqa: B018
    with pytest.raises(NotFittedError):
        Watch(guard, volatility=VolatilityWatch())
    with pytest.raises(NotFittedError, match="fitted AccuracyEstimator"):
        Watch(guard, estimator=assay.AccuracyEstimator())


def test_counts_of_another_fit_are_refused(network, clean, tmp_path):
    """Settings and threshold are the same; the patterns that were learned are not."""
    one, other = (
        Watch(Guard(network, ActivationPattern().fit(part), threshold=2.0))
        for part in (clean[:50], clean[50:])
    )
    one(inputs(5, 1))
    one.keep(tmp_path / "counts")
    with pytest.raises(InputError, match="got another guard"):
        other.resume(tmp_path / "counts")


def test_nobody_waits_for_the_identity_of_the_guard(guard, clean, bins, tmp_path, monkeypatch):
    watched = watch_of(guard, clean, bins)
    watched(inputs(5, 1))
    held = []
    known = Guard.fingerprint
    monkeypatch.setattr(
        Guard, "fingerprint", property(lambda self: held.append(watched._lock.locked()) or known.fget(self))
    )
    watched.keep(tmp_path / "counts")
    assert held == [False]


def test_estimates_of_another_reference_are_refused_and_nothing_is_taken_up(guard, clean, tmp_path):
    one, other = (
        Watch(guard, estimator=assay.AccuracyEstimator(window=WINDOW).fit(clean[part]))
        for part in (slice(300), slice(300, 600))
    )
    one(inputs(1024, 1))
    one.keep(tmp_path / "counts")
    with pytest.raises(InputError, match="got another estimator"):
        other.resume(tmp_path / "counts")
    assert other.state_now().predictions == 0


def test_counts_of_something_else_are_refused(guard, network, clean, bins, tmp_path):
    path = tmp_path / "counts"
    watch_of(guard, clean, bins).keep(path)
    other = Guard(network, guard.monitor, threshold=1.0)
    with pytest.raises(InputError, match="got another guard and clean reference; continue"):
        watch_of(other, clean, bins).resume(path)
    filled = watch_of(guard, clean, bins)
    filled(inputs(3, 1))
    filled.keep(path)
    other = Watch(guard, Bins(width=2.0, network=network.fingerprint), VolatilityWatch(60).calibrate(clean))
    with pytest.raises(InputError, match="got another bins and clean reference"):
        other.resume(path)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(assay.AssayError, match="truncated or damaged"):
        watch_of(guard, clean, bins).resume(path)
