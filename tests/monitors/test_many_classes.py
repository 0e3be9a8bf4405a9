"""A thousand classes of two thousand features: what fits into memory, and what is said of the rest."""

import numpy as np
import pytest
import torch

from assay import Trace
from assay.errors import InputError
from assay.monitors import ActivationBox, Mahalanobis, RelativeMahalanobis
from assay.monitors.parts import moments as moments_file
from assay.monitors.parts.fourth_moments import FourthMoments
from assay.monitors.parts.subspaces import ClassSubspaces


def unlike_classes(classes, size, rows, seed=0):
    """Classes of different sizes, scales and shapes, far from the origin, in random order."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    labels = torch.arange(classes).repeat_interleave(
        torch.randint(2, 2 * rows, (classes,), generator=generator)
    )
    scales = torch.exp(normal(classes, size)) * torch.linspace(0, -3, size).exp()
    turns = torch.linalg.qr(normal(classes, size, size)).Q
    spread = torch.einsum("nd,nde->ne", normal(len(labels), size) * scales[labels], turns[labels])
    features = spread + 5 * normal(classes, size)[labels] + 20
    order = torch.randperm(len(labels), generator=generator)
    return features[order], labels[order]


def trace_of(features, labels, classes):
    return Trace(torch.zeros(len(features), classes), {"penultimate": features}, labels)


def centred(features, labels, classes):
    values = features.double()
    sums = torch.zeros(classes, values.shape[1], dtype=torch.float64).index_add_(0, labels, values)
    return values - (sums / torch.bincount(labels, minlength=classes)[:, None])[labels]


@pytest.mark.parametrize(("classes", "rows"), [(20, 300), (60, 20)])
def test_fourth_moments_without_covariances_are_close_to_exact(classes, rows):
    features, labels = unlike_classes(classes, 12, rows)
    running = FourthMoments(classes, 12)
    for start in range(0, len(labels), 100):
        running.add(features[start : start + 100], labels[start : start + 100])
    exact = float(centred(features, labels, classes).square().sum(dim=1).square().sum())
    # Exact up to rounding where all rows of a class are kept; else a guess for a share of log(n) / n.
    assert running.total() == pytest.approx(exact, rel=1e-12 if rows < 30 else 1e-3)


def test_ledoit_wolf_of_many_classes_needs_no_covariance_of_each(monkeypatch):
    features, labels = unlike_classes(20, 12, 300)
    trace = trace_of(features, labels, 20)
    exact = Mahalanobis(estimator="ledoit_wolf").fit(trace).score(trace)
    relative = RelativeMahalanobis(estimator="ledoit_wolf").fit(trace).score(trace)
    monkeypatch.setattr(moments_file, "_EXACT", 0)
    assert torch.allclose(Mahalanobis(estimator="ledoit_wolf").fit(trace).score(trace), exact, rtol=1e-4)
    found = RelativeMahalanobis(estimator="ledoit_wolf").fit(trace).score(trace)
    assert torch.allclose(found, relative, rtol=1e-4, atol=1e-4)


def test_subspaces_are_exact_where_a_class_varies_in_few_directions():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(400) % 2
    planes = torch.randn(2, 3, 10, generator=generator)
    features = torch.einsum("nr,nrd->nd", torch.randn(400, 3, generator=generator), planes[labels]) + 7
    found = ClassSubspaces.of(iter([trace_of(features, labels, 2)]), "penultimate", rank=4)
    axes, variances, others = found.directions(found.seen)
    for number in range(2):
        rows = features[labels == number].double().numpy()
        expected = np.linalg.eigvalsh(np.cov(rows.T, bias=True))[::-1][:4]
        assert np.allclose(variances[number], expected, atol=1e-5)
        assert np.allclose(found.means[number], rows.mean(axis=0), atol=1e-6)
        assert float(others[number]) < 1e-10 * expected.sum()
        covariance = axes[number].T @ (variances[number][:, None] * axes[number])
        assert np.allclose(covariance, np.cov(rows.T, bias=True), atol=1e-5)


def test_a_rank_of_all_directions_but_one_is_a_covariance_per_class():
    features, labels = unlike_classes(5, 6, 200)
    trace = trace_of(features, labels, 5)
    whole = Mahalanobis(covariance="per_class").fit(trace)
    few = Mahalanobis(covariance="low_rank", rank=16).fit(trace)
    assert few.axes_.shape == (5, 5, 6)
    # Directions are kept in single precision, and the smallest variance is what they leave of the total.
    assert torch.allclose(few.distances(trace), whole.distances(trace), rtol=1e-3, atol=1e-3)


def test_low_rank_distances_are_those_of_the_covariance_they_stand_for():
    features, labels = unlike_classes(4, 20, 15)  # few rows: none is lost on the way
    trace = trace_of(features, labels, 4)
    monitor = Mahalanobis(covariance="low_rank", rank=16, estimator="empirical").fit(trace)
    rows = features[labels == 2].double().numpy()
    values, vectors = np.linalg.eigh(np.cov(rows.T, bias=True))
    kept = np.diag(np.concatenate([np.full(4, values[:4].mean()), values[4:]]))
    if values[:4].mean() <= 1e-12 * values.mean():
        pytest.skip("this class has too few rows for an empirical covariance")
    inverse = np.linalg.inv(vectors @ kept @ vectors.T)
    away = features.double().numpy() - rows.mean(axis=0)
    expected = np.einsum("nd,de,ne->n", away, inverse, away)
    assert np.allclose(monitor.distances(trace)[:, 2], expected, rtol=1e-3)


@pytest.mark.parametrize("estimator", ["empirical", "oas"])
def test_classes_with_few_rows_or_none_of_their_own_spread_are_said(estimator):
    features, labels = unlike_classes(30, 40, 60)
    few = torch.isin(labels, torch.arange(12))
    places = torch.zeros(30, dtype=torch.long)
    for row in few.nonzero().squeeze(1).tolist():  # three rows of the first twelve classes
        places[labels[row]] += 1
        few[row] = places[labels[row]] > 3
    features, labels = features[~few], labels[~few]
    features[labels == 3] = 1.0  # and no spread at all
    trace = trace_of(features, labels, 30)
    monitor = Mahalanobis(covariance="low_rank", estimator=estimator).fit(trace)
    assert torch.isfinite(monitor.score(trace)).all()
    scarce = int((torch.bincount(labels) <= monitor.rank + 1).sum())  # n rows vary in n - 1 directions
    expected = f"classes 0, 1, 2, 3, 4 and {scarce - 5} more" if estimator == "empirical" else "class 3 had"
    assert expected in monitor.remedy_


def test_a_covariance_per_class_that_cannot_fit_is_refused_before_the_work(monkeypatch):
    monkeypatch.setattr("assay.monitors.mahalanobis.free_memory", lambda: 20e9)
    labels = torch.arange(4) % 2
    trace = trace_of(torch.rand(4, 2048), labels, 1000)
    words = r"20\.0 GB of free memory, got 100\.7 GB for 1,000 classes of 2,048 .*low_rank.*0\.5 GB"
    with pytest.raises(InputError, match=words):
        Mahalanobis(covariance="per_class").fit(trace)
    assert len(Mahalanobis(covariance="low_rank").fit(trace).score(trace)) == 4


def test_low_rank_takes_no_ledoit_wolf_and_no_rank_of_zero():
    with pytest.raises(InputError, match="estimator='oas'"):
        Mahalanobis(covariance="low_rank", estimator="ledoit_wolf")
    with pytest.raises(InputError, match="rank of at least 1"):
        Mahalanobis(covariance="low_rank", rank=0)


def test_a_remedy_names_a_few_classes_and_counts_the_rest():
    trace = trace_of(torch.rand(40, 3), torch.arange(40) % 10, 150)
    logits = torch.nn.functional.one_hot(trace.labels, 150).float()
    box = ActivationBox().fit(Trace(logits, {"penultimate": trace.layer("penultimate")}))
    assert "classes 10, 11, 12, 13, 14 and 135 more" in box.remedy_
    assert len(box.remedy_) < 200
    few = Mahalanobis(covariance="per_class").fit(trace_of(torch.rand(150, 8), torch.arange(150), 150))
    assert "and 145 more" in few.remedy_
    assert len(few.remedy_) < 300
