"""Proposed neurons: the variance by one direct inversion, and neurons that are known to say most."""

import numpy as np
import pytest
import torch

import assay
from assay import Histogram, Trace
from assay.errors import InputError, MissingLabelsError
from assay.reshaping import Privacy, propose_bins
from assay.reshaping.proposal import _Search


def trace(count=1500, seed=0):
    """Six neurons: 1 and 4 tell the classes apart, 3 repeats 1, the rest is noise."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, count)
    values = rng.normal(size=(count, 6))
    values[:, 1] += 4.0 * (labels == 1)
    values[:, 3] = values[:, 1] + 0.01 * rng.normal(size=count)
    values[:, 4] += 4.0 * (labels == 2)
    wrong = rng.random(count) < np.array([0.02, 0.3, 0.15])[labels]
    logits = np.eye(3)[np.where(wrong, (labels + 1) % 3, labels)] * 3
    return Trace(torch.tensor(logits), {"penultimate": torch.tensor(values)}, torch.tensor(labels))


@pytest.fixture(scope="module")
def test_set():
    return trace()


def test_neurons_that_tell_classes_apart_come_first_and_repeats_last(test_set):
    found = propose_bins(test_set, neurons=3, bins=(8,), inputs=500)
    first, second, third = found.to_frame()["neuron"]
    assert {first, second} in ({1, 4}, {3, 4})
    assert third not in (1, 3) or found.to_frame()["standard_error"].diff().iloc[-1] > -1e-3
    errors = found.to_frame()["standard_error"]
    assert errors.is_monotonic_decreasing
    assert found.standard_error == errors.iloc[-1]
    assert "a device sends" in found.summary()


def test_steps_give_the_variance_of_one_direct_inversion(test_set):
    search = _Search.of(test_set, "penultimate", 8, 500, assay.reshaping.accuracy, None, False, None)
    steps = search.steps(4)
    rows = [
        place for neuron in steps["neuron"] for place in np.r_[list(search.cells.patterns.spans())[neuron]]
    ]
    portions = search.cells.portions[rows]
    information = portions.T @ np.linalg.inv(search.covariance[np.ix_(rows, rows)]) @ portions
    # The shares of the first two classes are free, the last is what is left.
    free = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
    inner = np.linalg.inv(free.T @ (information + 12 * np.eye(3)) @ free)
    direct = search.slope @ free @ inner @ free.T @ search.slope + search.own_variance
    assert steps["standard_error"].iloc[-1] == pytest.approx(np.sqrt(direct), rel=1e-6)


def test_the_standard_error_is_that_of_repeated_trials():
    """60 trials of 400 inputs: the spread of a spread from 60 is 9 %, the first-order formula adds some."""
    test_set = trace(4000)
    found = propose_bins(test_set, neurons=2, bins=(8,), inputs=400)
    errors = []
    for seed in range(60):
        outside = trace(400, 1000 + seed)
        estimate = assay.estimate_from_counts(test_set, Histogram.of(outside, found.bins), resamples=2)
        errors.append(estimate.value - float(outside.correct.double().mean()))
    assert np.std(errors) == pytest.approx(found.standard_error, rel=0.35)


def test_noise_for_privacy_stops_where_one_more_neuron_does_harm(test_set):
    free = propose_bins(test_set, neurons=6, bins=(8,), inputs=300)
    noisy = propose_bins(test_set, neurons=6, bins=(8,), inputs=300, privacy=Privacy(0.5))
    assert len(noisy.bins.neurons) < len(free.bins.neurons)
    assert noisy.standard_error > free.standard_error


def test_bytes_are_those_of_the_file_a_device_sends(test_set, tmp_path):
    found = propose_bins(test_set, neurons=2, inputs=500)
    assay.save(Histogram.of(test_set, found.bins), tmp_path / "counts")
    # The header names bins and digits differently long; counts themselves are the same.
    assert found.bytes == pytest.approx((tmp_path / "counts").stat().st_size, rel=0.3)


def test_the_proposal_is_saved_and_drawn(test_set, tmp_path):
    found = propose_bins(test_set, neurons=2, bins=(4, 8), predictions=True)
    assert found.bins.classes == 3
    assert Histogram.of(test_set, found.bins).window.shape[0] == len(found.bins.neurons) + 1
    assay.save(found, tmp_path / "proposal")
    back = assay.load(tmp_path / "proposal")
    assert back.summary() == found.summary()
    assert back.plot().axes[0].get_xlabel()


def test_what_makes_no_proposal_is_refused(test_set):
    with pytest.raises(MissingLabelsError, match="with labels"):
        propose_bins(Trace(test_set.logits, test_set.features))
    with pytest.raises(InputError, match="2 bins"):
        propose_bins(test_set, bins=(1,))
    still = Trace(test_set.logits, {"penultimate": torch.ones(len(test_set), 2)}, test_set.labels)
    with pytest.raises(InputError, match="values vary"):
        propose_bins(still)
