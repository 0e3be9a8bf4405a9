"""Packed patterns give the Hamming distances of a plain comparison."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import assay
from assay import Trace
from assay.errors import InputError
from assay.monitors import ActivationPattern


def trace_of(features, classes, labels=None):
    return Trace(
        torch.nn.functional.one_hot(torch.as_tensor(classes), 4).float(), {"penultimate": features}, labels
    )


def random_trace(seed, rows, width, classes=3):
    generator = torch.Generator().manual_seed(seed)
    return trace_of(
        torch.randn(rows, width, generator=generator), torch.randint(classes, (rows,), generator=generator)
    )


@settings(max_examples=30)
@given(st.integers(0, 1000), st.sampled_from([1, 7, 8, 63, 64, 65, 130]))
def test_distances_equal_the_plain_comparison_for_any_width(seed, width):
    known, asked = random_trace(seed, 40, width), random_trace(seed + 1, 25, width)
    scores = ActivationPattern().fit(known).score(asked)
    on, off = known.features["penultimate"] > 0, asked.features["penultimate"] > 0
    for row in range(25):
        own = on[known.predictions == asked.predictions[row]]
        expected = (own != off[row]).sum(dim=1).min() if len(own) else width + 1
        assert scores[row] == expected


def test_each_pattern_is_kept_once():
    trace = random_trace(0, 50, 100)
    twice = ActivationPattern().fit([trace, trace[:13], trace])
    assert twice.nbytes == ActivationPattern().fit(trace).nbytes
    assert sum(map(len, twice.patterns_.values())) == 50
    # 100 neurons take two 64-bit words.
    assert twice.patterns_[0].shape[1] * twice.patterns_[0].element_size() == 16


def test_blocks_do_not_change_the_distances(monkeypatch):
    known, asked = random_trace(0, 300, 70), random_trace(1, 90, 70)
    monitor = ActivationPattern().fit(known)
    whole = monitor.score(asked)
    monkeypatch.setattr("assay.monitors.activation_pattern.COMPARISONS", 500)
    assert torch.equal(monitor.score(asked), whole)


def test_a_limit_bounds_the_patterns_and_does_not_depend_on_the_cuts():
    trace = random_trace(0, 300, 40)
    monitor = ActivationPattern(limit=20, seed=5).fit(trace)
    streamed = ActivationPattern(limit=20, seed=5).fit(
        trace[start : start + 33] for start in range(0, 300, 33)
    )
    assert all(len(patterns) == 20 for patterns in monitor.patterns_.values())
    assert all(np.array_equal(monitor.patterns_[k], streamed.patterns_[k]) for k in range(3))


def test_misclassified_rows_teach_nothing_and_unseen_classes_score_most():
    features = torch.tensor([[1.0, -1.0], [-1.0, -1.0], [1.0, 1.0]])
    labels = torch.tensor([0, 0, 3])
    monitor = ActivationPattern().fit(trace_of(features, [0, 0, 0], labels))
    assert monitor.score(trace_of(features, [0, 0, 0])).tolist() == [0, 0, 1]
    assert monitor.score(trace_of(features, [2, 3, 1])).tolist() == [3, 3, 3]
    assert "classes 1, 2, 3" in monitor.remedy_


def test_the_threshold_says_what_is_on():
    features = torch.tensor([[0.4], [0.6]])
    trace = trace_of(features, [0, 0])
    assert ActivationPattern().fit(trace[:1]).score(trace).tolist() == [0, 0]
    assert ActivationPattern(on_above=0.5).fit(trace[:1]).score(trace).tolist() == [0, 1]


def test_files_keep_the_scores_and_one_row_scores_as_in_a_batch(tmp_path):
    known, asked = random_trace(0, 60, 33), random_trace(1, 20, 33, classes=4)
    monitor = ActivationPattern().fit(known)
    assay.save(monitor, tmp_path / "pattern")
    scores = assay.load(tmp_path / "pattern").score(asked)
    assert torch.equal(scores, monitor.score(asked))
    assert torch.equal(scores, torch.cat([monitor.score(asked[row]) for row in range(20)]))


def test_what_is_not_finite_is_refused_at_fit_and_not_a_number_at_run_time():
    trace = random_trace(0, 10, 4)
    bad = trace.features["penultimate"].clone()
    bad[2, 1] = torch.nan
    wrong = Trace(trace.logits, {"penultimate": bad})
    with pytest.raises(InputError, match="finite penultimate"):
        ActivationPattern().fit(wrong)
    assert ActivationPattern().fit(trace).score(wrong).isnan().tolist() == [row == 2 for row in range(10)]
    with pytest.raises(InputError, match="limit"):
        ActivationPattern(limit=0)
