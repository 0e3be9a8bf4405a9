"""An answer after every full window, the same as if it had been asked alone, and a history that lasts."""

import math

import pytest
import torch
from torch import nn

import assay
from assay import AccuracyEstimator, Guard, Network, Watch
from assay.accuracy.headline import AccuracyVerdict, Headline
from assay.accuracy.result import AccuracyEstimates
from assay.errors import InputError, NotFittedError
from assay.monitors import Energy
from assay.operation import AccuracyHistory, AccuracyWindows
from assay.operation.accuracy_history import KEPT

WINDOW = 60


def rows(count, seed, noise=0.5):
    """Rows of three classes around three corners, and their classes."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(3, (count,), generator=generator)
    return 2.0 * torch.eye(4)[labels] + noise * torch.randn(count, 4, generator=generator), labels


@pytest.fixture(scope="module")
def network():
    """Knows the corners: its logits are the distances along the first three axes, after a hidden layer."""
    module = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3))
    with torch.no_grad():
        module[0].weight.copy_(torch.eye(4))
        module[2].weight.copy_(3 * torch.eye(3, 4))
        for layer in (module[0], module[2]):
            layer.bias.zero_()
    return Network(module)


@pytest.fixture(scope="module")
def taught(network):
    return AccuracyEstimator(window=WINDOW).fit(rows(200, 0, 0.9), network=network)


@pytest.fixture(scope="module")
def guard(network):
    clean = network.observe(rows(200, 1, 0.9))
    return Guard(network, Energy().fit(clean)).calibrate(clean, 0.1)


def headline(number):
    return Headline(number / 1000, 0.0, 1.0, AccuracyVerdict.HOLDS.value, f"number {number}")


def answer(number, count=10):
    return AccuracyEstimates([], 0.9, count, 0.95, headline(number))


def test_every_window_is_answered_as_if_it_were_alone(network, taught):
    trace = network.observe(rows(250, 2, 1.2)[0])
    windows = AccuracyWindows(taught, WINDOW)
    for start in range(0, 250, 37):  # cut anywhere
        windows.update(trace[start : start + 37])
    assert windows.waiting_rows == 10
    assert len(windows.history) == 4
    for number, found in enumerate(windows.history.headlines):
        alone = taught.estimate(taught.count(trace[number * WINDOW : (number + 1) * WINDOW])).headline
        assert str(found) == str(alone)  # which may have NaN in it
    assert windows.counts.rows == 240
    assert str(windows.estimates.headline) == str(windows.history.latest)


def test_a_stream_that_loses_its_inputs_is_refused_and_goes_on(network, taught):
    windows = AccuracyWindows(taught, WINDOW)
    windows.update(network.observe(rows(40, 4)[0], keep_inputs=True))
    with pytest.raises(InputError, match="all have inputs"):
        windows.update(network.observe(rows(40, 5)[0]))
    windows.update(network.observe(rows(40, 5)[0], keep_inputs=True))
    assert (windows.history.windows, windows.waiting_rows) == (1, 20)


def test_a_level_is_checked_before_the_first_window(taught):
    with pytest.raises(InputError, match="level between 0 and 1"):
        AccuracyWindows(taught, WINDOW, level=95)


def test_rows_that_are_not_finite_are_left_out(network, taught):
    good = network.observe(rows(WINDOW + 1, 3)[0])
    bad = assay.Trace(torch.full((5, 3), torch.nan), {"penultimate": torch.zeros(5, 4)})
    worse = assay.Trace(torch.zeros(5, 3), {"penultimate": torch.full((5, 4), torch.inf)}, outputs="logits")
    windows = AccuracyWindows(taught, WINDOW)
    for part in (good[:20], bad, worse, good[20:]):
        windows.update(part)
    assert windows.waiting_rows == 1
    assert windows.counts.rows == WINDOW


def test_the_history_forgets_the_oldest_and_goes_on_counting():
    history = AccuracyHistory(0.9)
    assert history.latest is None
    assert history.summary() == "No window is full yet."
    for number in range(KEPT + 7):
        history = history.extended(answer(number))
    assert (len(history), history.windows) == (KEPT, KEPT + 7)
    frame = history.to_frame()
    assert frame["window"].tolist() == list(range(8, KEPT + 8))
    assert frame["row"].tolist() == list(range(80, 10 * KEPT + 71, 10))
    assert history.latest == headline(KEPT + 6)
    assert f'of {KEPT + 7} windows: "holds" {KEPT}' in history.summary()


def test_a_history_is_the_same_after_a_file(tmp_path):
    unknown = AccuracyEstimates([], 0.9, 5, 0.95, Headline.unknown("too few"))
    for history in (AccuracyHistory(0.9), AccuracyHistory(0.9).extended(answer(3)).extended(unknown)):
        assay.save(history, tmp_path / "history")
        again = assay.load(tmp_path / "history")
        assert again.to_frame().equals(history.to_frame())
        assert again.summary() == history.summary()
    axis = history.plot().axes[0]
    assert {"holds", "cannot tell", "reference"} <= set(axis.get_legend_handles_labels()[1])


def test_a_watch_keeps_its_history_over_a_restart(guard, taught, tmp_path):
    inputs = rows(400, 4)[0]
    whole, first, second = (Watch(guard, estimator=taught, window=WINDOW) for _ in range(3))
    assert whole.state_now().history.latest is None
    whole(inputs)
    first(inputs[: 3 * WINDOW])
    first.keep(tmp_path / "counts")
    assert second.resume(tmp_path / "counts")
    assert second.state_now().estimates is None  # which are not kept; the answers are
    assert len(second.state_now().history) == 3
    second(inputs[3 * WINDOW :])
    one, other = whole.state_now(), second.state_now()
    assert one.history.to_frame().equals(other.history.to_frame())
    assert str(one.estimates.headline) == str(other.estimates.headline) == str(other.history.latest)
    assert assay.load(tmp_path / "counts").history.windows == 3


def test_a_taught_estimator_sees_that_answers_repeat(guard, taught):
    watched = Watch(guard, estimator=taught, window=WINDOW)
    watched(rows(1, 5)[0].repeat(WINDOW, 1))
    latest = watched.state_now().history.latest
    assert latest.verdict == AccuracyVerdict.CANNOT_TELL
    assert "repeat the row before" in latest.reason
    assert math.isnan(latest.value)


def test_inputs_that_never_change_are_seen_where_traces_have_inputs(network, taught):
    inputs = rows(WINDOW, 6)[0]
    inputs[:, 3] = 0.3  # of no use to the network: its answers do not show it
    for kept in (True, False):
        windows = AccuracyWindows(taught, WINDOW)
        windows.update(network.observe(inputs, keep_inputs=kept))
        assert ("of the input values never change" in windows.history.latest.reason) == kept


def test_a_guard_must_give_the_layer_and_be_of_the_same_network(network, guard, taught):
    assert taught.layers == ("penultimate",)
    blind = Guard(
        Network(network.module, layers=()), Energy().fit(network.observe(rows(200, 1)[0])), threshold=0.0
    )
    with pytest.raises(InputError, match=r"features of \['penultimate'\], which the estimator learned from"):
        Watch(blind, estimator=taught)
    Watch(blind.watching(taught.layers), estimator=taught)
    torch.manual_seed(0)
    other = Network(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3)))
    stranger = Guard(other, Energy().fit(other.observe(rows(50, 1)[0])), threshold=0.0)
    with pytest.raises(InputError, match="taught on the guard's network"):
        Watch(stranger, estimator=taught)


def test_bad_windows_are_refused(taught):
    with pytest.raises(InputError, match="at least 1 row"):
        AccuracyWindows(taught, 0)
    with pytest.raises(NotFittedError):
        AccuracyWindows(AccuracyEstimator(), 10)
    with pytest.raises(InputError, match="features of layer 'penultimate'"):
        AccuracyWindows(taught, 10).update(assay.Trace(torch.randn(5, 3)))


def test_an_estimator_knows_what_it_was_fitted_on(network, taught, tmp_path):
    data = rows(200, 0, 0.9)
    assay.save(taught, tmp_path / "estimator")
    again = assay.load(tmp_path / "estimator")
    assert again.fingerprint == taught.fingerprint
    assert again.is_fitted_on(data, network)
    assert not again.is_fitted_on((data[0], 2 - data[1]), network)
    assert not again.is_fitted_on(network.observe(data))
    plain = AccuracyEstimator(window=WINDOW).fit(network.observe(data))
    assert plain.is_fitted_on(network.observe(data))
    assert plain.layers == ()
