"""Intervals are the textbook means and deviations, whatever the cuts."""

import pytest
import torch

import assay
from assay import Trace
from assay.errors import InputError
from assay.monitors import GaussianInterval
from assay.monitors.parts.class_rows import UNSEEN


def trace_of(features, classes, labels=None):
    return Trace(
        torch.nn.functional.one_hot(torch.as_tensor(classes), 3).float(),
        {"penultimate": torch.as_tensor(features).float()},
        labels,
    )


@pytest.fixture
def normal():
    generator = torch.Generator().manual_seed(0)
    classes = torch.arange(200) % 2
    return trace_of(torch.randn(200, 6, generator=generator) * 3 + 100 * classes[:, None], classes)


def test_the_state_is_the_textbook_mean_and_deviation(normal):
    monitor = GaussianInterval().fit(normal)
    for label in (0, 1):
        own = normal.features["penultimate"][normal.predictions == label].double()
        torch.testing.assert_close(monitor.means_[label], own.mean(dim=0))
        torch.testing.assert_close(monitor.deviations_[label], own.std(dim=0))


def test_counts_and_excess_of_a_case_by_hand():
    # Both neurons: mean 0, deviation 1 (values -1, 0, 1 divided by n - 1).
    monitor = GaussianInterval(k=2).fit(trace_of([[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0]], [0, 0, 0]))
    asked = trace_of([[1.9, -1.9], [2.1, 0.0], [-5.0, 3.0]], [0, 0, 0])
    assert monitor.score(asked).tolist() == [0.0, 0.5, 1.0]
    monitor.measure = "excess"
    assert monitor.score(asked).tolist() == pytest.approx([0.0, 0.05, 2.0], abs=1e-6)


def test_a_gaussian_leaves_its_interval_as_often_as_the_normal_law_says():
    generator = torch.Generator().manual_seed(1)
    trace = trace_of(torch.randn(20_000, 10, generator=generator), torch.zeros(20_000, dtype=torch.int64))
    share = GaussianInterval(k=2).fit(trace).score(trace).mean().item()
    # 2 (1 - Phi(2)) = 0.0455; 200,000 draws: standard error 0.0005, five of them.
    assert share == pytest.approx(0.0455, abs=0.0025)


@pytest.mark.parametrize("measure", ["share", "excess"])
def test_a_stream_gives_the_state_of_the_whole_and_files_keep_it(normal, measure, tmp_path):
    monitor = GaussianInterval(measure=measure).fit(normal)
    streamed = GaussianInterval(measure=measure).fit([normal[:0], normal[:1], normal[1:90], normal[90:]])
    assert torch.equal(streamed.means_, monitor.means_)
    assert torch.equal(streamed.deviations_, monitor.deviations_)
    asked = Trace(normal.logits, {"penultimate": normal.features["penultimate"] * 1.3})
    assay.save(monitor, tmp_path / "interval")
    assert torch.equal(assay.load(tmp_path / "interval").score(asked), monitor.score(asked))
    rows = torch.cat([monitor.score(asked[row]) for row in range(200)])
    torch.testing.assert_close(rows, monitor.score(asked))


def test_features_far_from_zero_keep_their_spread():
    generator = torch.Generator().manual_seed(2)
    near = torch.randn(500, 1, generator=generator, dtype=torch.float64)
    classes = torch.zeros(500, dtype=torch.int64)
    logits = torch.nn.functional.one_hot(classes, 3).float()
    far = GaussianInterval().fit(Trace(logits, {"penultimate": near + 1e9}))
    # 1e9 + x keeps x to 1e-7; naive sums of squares would keep nothing.
    assert far.deviations_[0].item() == pytest.approx(near.std().item(), rel=1e-5)


def test_constant_neurons_single_rows_and_unseen_classes_give_finite_scores():
    features = [[0.0, 5.0, 1.0], [1.0, 5.0, 1.0], [2.0, 5.0, 1.0], [9.0, 5.0, 3.0]]
    monitor = GaussianInterval(k=1.5).fit(trace_of(features, [0, 0, 0, 1]))
    assert monitor.score(trace_of(features, [0, 0, 0, 1])).tolist() == [0, 0, 0, 0]
    # The class of one row takes the spread over all classes, about 4 for neuron 0.
    assert monitor.score(trace_of([[12.0, 5.0, 3.0], [9.0, 6.0, 3.0]], [1, 1])).tolist() == [0, 0]
    assert monitor.score(trace_of([[1.0, 5.0, 1.1]], [0])).item() == pytest.approx(1 / 3)
    assert monitor.score(trace_of([[1.0, 5.0, 1.0]], [2])).item() == 1
    assert "class 2" in monitor.remedy_
    graded = GaussianInterval(measure="excess").fit(trace_of(features, [0, 0, 0, 1]))
    assert graded.score(trace_of([[1.0, 5.0, 1.0]], [2])).item() == UNSEEN


def test_misclassified_rows_teach_nothing_and_bad_values_are_refused(normal):
    none = Trace(normal.logits, normal.features, 1 - normal.predictions)
    with pytest.raises(InputError, match="correctly classified rows"):
        GaussianInterval().fit(none)
    bad = normal.features["penultimate"].clone()
    bad[2, 1] = torch.inf
    wrong = Trace(normal.logits, {"penultimate": bad})
    with pytest.raises(InputError, match="finite penultimate"):
        GaussianInterval().fit(wrong)
    assert GaussianInterval().fit(normal).score(wrong)[2].isnan()
    with pytest.raises(InputError, match="k above 0"):
        GaussianInterval(k=0)
    with pytest.raises(InputError, match="measure"):
        GaussianInterval(measure="votes")
    with pytest.raises(InputError, match="expected data to fit"):
        GaussianInterval().fit([])
