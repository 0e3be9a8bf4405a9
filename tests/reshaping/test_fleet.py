"""A fleet: devices with their own classes and conditions, whose truth is known."""

import numpy as np
import pytest
import torch

import assay
from assay import Bins, Histogram, Trace
from assay.errors import InputError, MissingLabelsError

CONDITIONS = {"clean": 0.0, "fog": 1.0, "night": 2.0}


def seen(count, shares, strength, seed):
    """Three classes; under a condition values shrink and errors become more likely."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(3, count, p=np.array(shares) / sum(shares))
    centres = np.array([[2.0, 6.0, 3.0], [6.0, 2.0, 4.0], [4.0, 5.0, 8.0]])
    values = np.clip((centres[labels] + rng.normal(size=(count, 3))) * (1 - 0.15 * strength), 0, 11.9)
    wrong = rng.random(count) < np.array([0.05, 0.2, 0.1])[labels] * (1 + strength)
    margin = np.where(wrong, 0.5, 2.0) + rng.random(count) * (2.0 - 0.5 * strength)
    logits = np.eye(3)[np.where(wrong, (labels + 1) % 3, labels)] * margin[:, None]
    return Trace(
        torch.tensor(logits), {"penultimate": torch.tensor(values, dtype=torch.float32)}, torch.tensor(labels)
    )


@pytest.fixture(scope="module")
def fleet():
    parts = [seen(600, (1, 1, 1), strength, 1) for strength in CONDITIONS.values()]
    home = Trace.concatenate(parts)
    bins = Bins(width=1.0, last=11).with_predictions(home, 4)
    rng = np.random.default_rng(0)
    traces = [seen(200, rng.dirichlet(np.ones(3)), 2 * rng.random(), 100 + k) for k in range(40)]
    histograms = {f"car {k}": Histogram.of(trace, bins) for k, trace in enumerate(traces)}
    return home, np.repeat(list(CONDITIONS), 600), histograms, traces


def truths(traces):
    return np.array([float(trace.correct.double().mean()) for trace in traces])


def test_every_device_is_estimated_and_intervals_hold(fleet):
    home, conditions, histograms, traces = fleet
    found = assay.estimate_fleet(home, histograms, conditions=conditions, pseudo_devices=60)
    frame, truth = found.devices, truths(traces)
    assert frame["device"].tolist() == list(histograms)
    assert (frame["inputs"] == 200).all()
    # Sampling alone gives a mean error of about 0.02 at 200 inputs.
    assert np.abs(frame["value"] - truth).mean() < 0.035
    held = ((frame["lower"] <= truth) & (truth <= frame["upper"])).sum()
    assert held >= 35  # of 40 at 95 %: fewer has a chance below 1 in 20
    assert not frame["alarm"].any()


def test_devices_below_the_target_come_first(fleet, tmp_path):
    home, conditions, histograms, _ = fleet
    found = assay.estimate_fleet(home, histograms, conditions=conditions, pseudo_devices=20, target=0.9)
    frame = found.to_frame()
    below = frame["below"].to_numpy()
    assert below.any()
    assert (np.diff(below.astype(int)) <= 0).all()
    assert frame["value"][below].is_monotonic_increasing
    assert (frame["upper"][below] < 0.9).all()
    assert f"{below.sum()} are below the target of 0.9, the worst {frame['device'][0]}" in found.summary()
    assert found.plot().axes[0].get_xlabel()
    assay.save(found, tmp_path / "fleet")
    assert assay.load(tmp_path / "fleet").to_frame().equals(frame)


def test_the_answer_does_not_depend_on_the_engine(fleet):
    home, conditions, histograms, _ = fleet
    some = dict(list(histograms.items())[:4])
    here, there = (
        assay.estimate_fleet(home, some, conditions=conditions, pseudo_devices=20, engine=engine)
        for engine in ("here", "processes")
    )
    assert here.devices.equals(there.devices)


def test_private_counts_widen_the_intervals(fleet):
    home, conditions, histograms, traces = fleet
    private = {name: one.private(1.0, seed=k) for k, (name, one) in enumerate(histograms.items())}
    found = assay.estimate_fleet(home, private, conditions=conditions, pseudo_devices=60)
    plain = assay.estimate_fleet(home, histograms, conditions=conditions, pseudo_devices=60)
    widths, before = (one.devices["upper"] - one.devices["lower"] for one in (found, plain))
    assert widths.mean() > before.mean()
    frame, truth = found.devices, truths(traces)
    assert ((frame["lower"] <= truth) & (truth <= frame["upper"])).sum() >= 35


def test_a_device_unlike_home_raises_the_alarm(fleet):
    home, conditions, histograms, _ = fleet
    bins = next(iter(histograms.values())).bins
    strange = seen(200, (1, 1, 1), 0.0, 5)
    mirrored = Trace(strange.logits, {"penultimate": 11.5 - strange.layer("penultimate")}, strange.labels)
    found = assay.estimate_fleet(
        home, [Histogram.of(mirrored, bins)], conditions=conditions, pseudo_devices=40, target=0.99
    )
    assert found.devices["alarm"].all()
    assert "unlike anything at home" in found.summary()
    assert not found.to_frame()["below"].any()


def test_without_conditions_classes_alone_may_differ(fleet):
    home, conditions, _, _ = fleet
    clean = home[torch.from_numpy(conditions == "clean")]
    bins = Bins(width=1.0, last=11).with_predictions(clean, 4)
    device = seen(300, (1, 5, 1), 0.0, 9)
    found = assay.estimate_fleet(clean, [Histogram.of(device, bins)], pseudo_devices=60).devices.iloc[0]
    assert found["lower"] <= float(device.correct.double().mean()) <= found["upper"]


def test_what_makes_no_fleet_is_refused(fleet):
    home, conditions, histograms, _ = fleet
    one = next(iter(histograms.values()))
    with pytest.raises(InputError, match="at least one device"):
        assay.estimate_fleet(home, [])
    with pytest.raises(InputError, match="one condition per home row"):
        assay.estimate_fleet(home, [one], conditions=conditions[:3])
    with pytest.raises(MissingLabelsError, match="with labels"):
        assay.estimate_fleet(Trace(home.logits, home.features), [one])
    with pytest.raises(InputError, match="a target between"):
        assay.estimate_fleet(home, [one], target=2)
    with pytest.raises(InputError, match="at least 20 pseudo_devices"):
        assay.estimate_fleet(home, [one], pseudo_devices=1)
    with pytest.raises(InputError, match="over the same bins"):
        assay.estimate_fleet(home, [one, Histogram.of(home, Bins(width=2.0, last=5))])


def test_predictions_are_counted_by_class_and_confidence(fleet):
    home = fleet[0]
    bins = Bins(width=1.0, last=11).with_predictions(home, 4)
    histogram = Histogram.of(home, bins)
    confidences = home.probabilities.amax(dim=1).numpy()
    place = np.searchsorted(bins.confidences, confidences)
    expected = np.bincount(home.predictions.numpy() * 4 + place, minlength=12)
    assert histogram.counts[-1].tolist() == expected.tolist()
    assert histogram.to_frame()["neuron"].iloc[-1] == "prediction"
    half = Histogram.of(home[:900], bins) + Histogram.of(home[900:], bins)
    assert (half.counts == histogram.counts).all()
    noisy = histogram.private(1.0, seed=0)
    assert (noisy.window.sum(axis=1) == noisy.total).all()
