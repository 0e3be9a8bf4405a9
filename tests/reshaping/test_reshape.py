"""Reshaping from Trace to estimate."""

import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import assay
from assay import Bins, Histogram, Network, Trace
from assay.errors import AssayError, InputError, UndecidedError
from assay.reshaping import subset
from assay.reshaping.solver import certificate, process


def population(count, weights, seed):
    """Classes of two neurons each; class 1 is hard. (values, labels, logits)"""
    rng = np.random.default_rng(seed)
    labels = rng.choice(3, count, p=np.array(weights) / sum(weights))
    centres = np.array([[1.0, 5.0, 1.0], [5.0, 1.0, 3.0], [3.0, 3.0, 6.0]])
    values = np.clip(centres[labels] + rng.normal(size=(count, 3)), 0, 8.9)
    wrong = rng.random(count) < np.array([0.05, 0.5, 0.1])[labels]
    logits = np.zeros((count, 3))
    logits[np.arange(count), np.where(wrong, (labels + 1) % 3, labels)] = 1
    return Trace(
        torch.tensor(logits), {"penultimate": torch.tensor(values, dtype=torch.float32)}, torch.tensor(labels)
    )


BINS = Bins(width=1.0, last=8)


@pytest.fixture(scope="module")
def scene():
    test, outside = population(1500, (1, 1, 4), 4), population(800, (1, 4, 1), 104)
    operational = Histogram.of(outside, BINS)
    return test, outside, operational, assay.reshape(test, operational, epsilon=0.02)


def test_the_kept_points_have_the_operational_histograms(scene):
    test, _, operational, result = scene
    kept = Histogram.of(test[result.kept], BINS)
    assert assay.portion_similarity(kept, operational) <= 0.02
    assert result.similarity == assay.portion_similarity(kept, operational)
    assert result.similarity_before > 0.1
    assert result.kept.dtype == torch.bool
    assert result.number_kept == int(result.kept.sum()) <= result.bound
    assert result.gap <= 0.01
    assert "kept" in result.summary()


def test_the_classes_move_towards_operation(scene):
    _, outside, _, result = scene
    trials = assay.ReshapingTrials.of([(result, outside.labels)])
    row = trials.to_frame().iloc[0]
    assert row["after"] < 0.5 * row["before"]
    assert "1 of 1 trials" in trials.summary()


def test_the_estimate_is_closer_to_the_truth_than_the_test_set(scene):
    test, outside, _, result = scene
    truth = float(outside.correct.double().mean())
    estimate = result.estimate(assay.accuracy)
    unshaped = float(test.correct.double().mean())
    assert estimate.unshaped == pytest.approx(unshaped)
    assert estimate.kept_value == pytest.approx(float(test[result.kept].correct.double().mean()))
    assert (estimate.method, estimate.value) == ("label shift", estimate.counts.value)
    assert abs(estimate.value - truth) < 0.5 * abs(unshaped - truth)
    assert estimate.lower <= truth <= estimate.upper
    assert abs(estimate.weighted - truth) < 0.5 * abs(unshaped - truth)
    assert estimate.range_lower <= min(estimate.kept_value, estimate.weighted)
    assert estimate.range_upper >= max(estimate.kept_value, estimate.weighted)
    assert 0 < estimate.effective_size < len(test)
    assert estimate.weighted_similarity <= 0.02 * 1.05
    assert list(estimate.to_frame()) == ["method", "value", "lower", "upper", "points", "assumes"]
    assert len(estimate.to_frame()) == 6


def test_the_package_accuracy_estimates_what_its_indicator_does(scene):
    result = scene[3]
    named = result.estimate(assay.accuracy, resamples=50)
    for other in (result.estimate(assay.reshaping.accuracy, resamples=50), result.estimate(resamples=50)):
        assert other.facts() == named.facts()
    assert isinstance(named, assay.IndicatorEstimate)
    assert (named.name, named.level) == ("accuracy", 0.95)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"level": 1.0}, "a level between 0 and 1, got 1"),
        ({"level": 0.0}, "a level between 0 and 1, got 0"),
        ({"resamples": 1}, "at least 2 resamples, got 1"),
    ],
)
def test_an_interval_that_makes_no_sense_is_refused(scene, arguments, sentence):
    with pytest.raises(InputError, match=sentence):
        scene[3].estimate(assay.accuracy, **arguments)


def test_a_higher_level_gives_a_wider_interval(scene):
    narrow, wide = (scene[3].estimate(level=level, resamples=200) for level in (0.5, 0.99))
    assert wide.lower < narrow.lower <= narrow.value <= narrow.upper < wide.upper
    assert "99% interval" in wide.summary()


def test_recall_and_any_function_are_estimated(scene):
    _, outside, _, result = scene
    recall = result.estimate(assay.recall(1))
    truth = float(outside.correct[outside.labels == 1].double().mean())
    assert recall.lower <= truth <= recall.upper

    def mean_label(labels, predictions):
        return float(labels.double().mean())

    free = result.estimate(mean_label, resamples=60)
    assert free.name == "mean_label"
    assert free.lower <= float(outside.labels.double().mean()) <= free.upper
    assert free.range_lower is None
    assert "Everything that fits" not in free.summary()


def test_estimates_that_disagree_say_so(scene):
    """Within a pattern of bins errors are as frequent as before only if classes are; here class 1 is not."""
    test, outside, _, _ = scene
    hidden = Trace(test.logits, {"penultimate": test.layer("penultimate")[:, :1]}, test.labels)
    counts = Histogram.of(Trace(outside.logits, {"penultimate": outside.layer("penultimate")[:, :1]}), BINS)
    estimate = assay.reshape(hidden, counts, epsilon=0.02).estimate(assay.accuracy)
    assert any("The kept points say" in sentence for sentence in estimate.disagreements)
    assert estimate.disagreements[0] in estimate.summary()


def test_the_papers_estimate_is_a_method_of_its_own(scene):
    label_shift, kept = (scene[3].estimate(method=method, resamples=50) for method in ("label shift", "kept"))
    assert (kept.value, kept.lower, kept.upper) == (kept.kept_value, kept.kept_lower, kept.kept_upper)
    assert kept.kept_value == label_shift.kept_value != label_shift.value
    with pytest.raises(InputError, match="a method of"):
        scene[3].estimate(method="luck")


def test_gamma_widens_the_ends(scene):
    plain, wider = (scene[3].estimate(gamma=gamma, resamples=100) for gamma in (None, 1.5))
    assert wider.lower < plain.lower < plain.value == wider.value < plain.upper < wider.upper
    assert (wider.lower, wider.upper) == plain.counts.range_at(1.5)
    with pytest.raises(InputError, match="expected a gamma from 1"):
        scene[3].estimate(gamma=0.5)


def test_no_error_among_few_points_is_not_taken_for_none(scene):
    test, _, operational, _ = scene
    perfect = Trace(nn.functional.one_hot(test.labels).double(), test.features, test.labels)
    estimate = assay.reshape(perfect, operational, epsilon=0.02).estimate(assay.accuracy)
    assert estimate.value == 1.0
    assert 0.95 < estimate.lower < 1.0


def test_saved_and_loaded_results_say_the_same(scene, tmp_path):
    result = scene[3]
    estimate = result.estimate(assay.accuracy, resamples=50)
    trials = assay.ReshapingTrials.of([(result, scene[1].labels)])
    for name, thing in (("result", result), ("estimate", estimate), ("trials", trials)):
        assay.save(thing, tmp_path / name)
        back = assay.load(tmp_path / name)
        assert back.summary() == thing.summary()
        assert back.to_frame().equals(thing.to_frame())


def test_pictures_have_labelled_axes(scene):
    result, outside = scene[3], scene[1]
    pictures = [
        *result.figures(),
        result.plot_classes(outside.labels),
        result.estimate(assay.accuracy, resamples=20).plot(),
        assay.ReshapingTrials.of([(result, outside.labels)]).plot(),
        result.operational.plot(),
    ]
    for figure in pictures:
        assert all(axes.get_xlabel() or axes.get_ylabel() for axes in figure.axes)
        figure.canvas.draw()


def test_a_similar_test_set_is_kept_whole(scene):
    test = scene[0]
    result = assay.reshape(test, Histogram.of(test, BINS), epsilon=0.01)
    assert result.kept.all()
    assert (result.bound, result.gap, result.optimal) == (len(test), 0.0, True)


def test_only_candidates_are_removed(scene):
    test, _, operational, free = scene
    candidates = torch.zeros(len(test), dtype=torch.bool)
    candidates[:1400] = True
    result = assay.reshape(test, operational, epsilon=0.03, candidates=candidates)
    assert result.kept[1400:].all()
    by_index = assay.reshape(test, operational, epsilon=0.03, candidates=torch.arange(1400))
    assert torch.equal(by_index.kept, result.kept)
    assert result.number_kept <= assay.reshape(test, operational, epsilon=0.03).bound
    assert free.number_kept > 0


def test_the_same_seed_keeps_the_same_points(scene):
    test, _, operational, result = scene
    assert torch.equal(assay.reshape(test, operational, epsilon=0.02).kept, result.kept)
    assert not torch.equal(assay.reshape(test, operational, epsilon=0.02, seed=1).kept, result.kept)


def test_where_nothing_matches_the_error_says_why_and_what_would_do(scene):
    test, _, operational, _ = scene
    poor = test[test.labels == 0]
    with pytest.raises(assay.CannotMatchError, match="is enough") as caught:
        assay.reshape(poor, operational, epsilon=0.02)
    error = caught.value
    assert isinstance(error, InputError)
    assert len(error.cells)
    assert {"neuron", "bin", "operational", "test", "reason"} <= set(error.cells)
    assert 0.02 < error.least_epsilon <= error.smallest_epsilon
    assert assay.reshape(poor, operational, epsilon=error.smallest_epsilon).number_kept > 0
    with pytest.raises(assay.CannotMatchError):
        assay.reshape(poor, operational, epsilon=0.99 * error.least_epsilon)


@pytest.mark.parametrize("epsilon", [0.0, -0.1, 1.5, float("nan")])
def test_an_epsilon_outside_its_range_is_refused(scene, epsilon):
    with pytest.raises(InputError, match="epsilon above 0 and at most 1"):
        assay.reshape(scene[0], scene[2], epsilon=epsilon)


def test_empty_sets_are_refused(scene):
    test, _, operational, _ = scene
    with pytest.raises(InputError, match="empty one"):
        assay.reshape(test, Histogram.of(test[:0], BINS), epsilon=0.02)
    with pytest.raises(InputError, match="at least one point"):
        assay.reshape(test[:0], operational, epsilon=0.02)


def test_histograms_of_another_network_are_refused(scene):
    test, _, operational, _ = scene
    network = Network(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 3)))
    with pytest.raises(InputError, match="histogram of this network"):
        assay.reshape(test, operational, epsilon=0.02, network=network)
    narrow = Trace(test.logits, {"penultimate": test.layer("penultimate")[:, :2]}, test.labels)
    with pytest.raises(InputError, match="expected 3 watched neurons"):
        assay.reshape(narrow, operational, epsilon=0.02)


def test_values_outside_the_bins_are_refused_and_nothing_is_lost(scene):
    test, _, operational, _ = scene
    far = Trace(test.logits, {"penultimate": test.layer("penultimate") + 5}, test.labels)
    with pytest.raises(InputError, match="nothing was counted"):
        assay.reshape(far, operational, epsilon=0.02)


def test_estimates_need_labels(scene):
    test, _, operational, _ = scene
    unlabelled = Trace(test.logits, test.features)
    result = assay.reshape(unlabelled, operational, epsilon=0.02)
    assert len(result.figures()) == 1
    with pytest.raises(InputError, match="labels"):
        result.estimate(assay.accuracy)


def test_a_solver_that_overruns_is_ended(scene, monkeypatch, tmp_path):
    """A worker that never looks at the clock is stopped by its parent after the limit."""
    monkeypatch.setattr(process, "GRACE", 0.2)
    slow = tmp_path / "slow.sh"
    slow.write_text("#!/bin/sh\nexec sleep 3600\n")
    slow.chmod(0o755)
    monkeypatch.setattr(process.sys, "executable", str(slow))
    workers = []

    class Recorded(subprocess.Popen):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            workers.append(self)

    monkeypatch.setattr(process.subprocess, "Popen", Recorded)
    with pytest.raises(UndecidedError, match=r"no subset was found within 0\.5 s"):
        assay.reshape(scene[0], scene[2], epsilon=0.02, time_limit=0.5)
    assert [worker.returncode for worker in workers] == [-signal.SIGKILL]


def test_a_solver_that_breaks_down_is_reported(scene, monkeypatch):
    monkeypatch.setattr(process.sys, "executable", "/bin/false")
    with pytest.raises(AssayError, match="ended with status 1"):
        assay.reshape(scene[0], scene[2], epsilon=0.02)


def test_a_solver_that_lies_is_caught(scene, monkeypatch):
    test, _, operational, _ = scene

    def lying(problem, task, time_limit, **extra):
        return {"kept": {"counts": problem.multiplicity}, "done": {"done": True}}

    monkeypatch.setattr(subset, "solved", lying)
    with pytest.raises(AssayError, match="differ by"):
        assay.reshape(test, operational, epsilon=0.02)


@pytest.mark.parametrize(
    ("imported", "absent"),
    [("assay; assay.reshape, assay.Histogram", "highspy"), ("assay.reshaping.solver.worker", "torch")],
    ids=["no solver in this process", "no torch in the solver's process"],
)
def test_each_process_loads_only_what_it_needs(imported, absent):
    """highspy and ortools cannot be loaded together; torch would only delay the solver's process."""
    code = f"import sys; import {imported}; print({absent!r} in sys.modules)"
    path = ":".join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": path}, check=True
    )
    assert done.stdout.strip() == "False"


def test_what_rests_on_the_word_of_highs_says_so(scene):
    """Without the solver's own word for a number of points, the limit that is checked here is higher."""
    result = scene[3]
    assert result.checked_bound >= result.bound
    trusted = replace(result, bound=result.number_kept, checked_bound=result.number_kept + 1)
    assert "by the word of HiGHS" in trusted.summary()
    proven = replace(result, bound=result.number_kept, checked_bound=result.number_kept)
    assert "proven to be the most possible" in proven.summary()


def test_a_number_that_highs_found_impossible_counts_only_if_trusted(scene):
    test, _, operational, result = scene
    problem, _ = result.occupied_bins.problem(operational.total, 0.02)
    limit = certificate.single_neuron_bound(problem)
    found = {f"exhausted-{limit}": {"number": np.array(limit)}}
    assert subset.proven_bound(problem, found, trusting=False) == limit
    assert subset.proven_bound(problem, found) == limit - 1
    assert len(test) >= limit
