"""KNN and NNGuide against brute force over all pairs; the two searches against each other."""

import pytest
import torch

from assay import Trace
from assay.errors import InputError
from assay.monitors import KNN, NNGuide
from assay.monitors.parts import nearest as search


def trace_of(rows, size, seed, classes=3):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, classes, generator=generator)
    return Trace(logits, {"penultimate": torch.randn(rows, size, generator=generator)})


def unit(features):
    return features.double() / features.double().norm(dim=1, keepdim=True)


@pytest.mark.parametrize(("rows", "k"), [(400, 1), (400, 50), (30, 30), (2000, 7)])
def test_knn_is_the_distance_to_the_kth_nearest_unit_row(library, rows, k):
    training, unseen = trace_of(rows, 5, seed=0), trace_of(60, 5, seed=1)
    pairs = (unit(unseen.layer("penultimate"))[:, None] - unit(training.layer("penultimate"))[None]).norm(
        dim=2
    )
    expected = pairs.sort(dim=1).values[:, k - 1]
    # The neighbour is found in single precision: near ties differ by about 1e-7 in the square.
    assert torch.allclose(KNN(k=k).fit(training).score(unseen), expected, atol=1e-5)


@pytest.mark.parametrize(("rows", "k"), [(400, 10), (8, 8), (2000, 3)])
def test_nnguide_is_energy_times_the_mean_of_the_largest_scaled_cosines(library, rows, k):
    training, unseen = trace_of(rows, 5, seed=0), trace_of(60, 5, seed=1)
    energy = torch.logsumexp(training.logits.double(), dim=1)
    cosines = unit(unseen.layer("penultimate")) @ unit(training.layer("penultimate")).T * energy
    guidance = cosines.sort(dim=1, descending=True).values[:, :k].mean(dim=1)
    expected = -torch.logsumexp(unseen.logits.double(), dim=1) * guidance
    assert torch.allclose(NNGuide(k=k).fit(training).score(unseen), expected, atol=1e-5)


def test_the_grouped_selection_is_topk():
    products = torch.randn(40, 1013, generator=torch.Generator().manual_seed(0))
    products[:, 500:520] = products[:, :20]  # ties
    values, places = search._largest(products, 12)
    assert torch.equal(values, products.topk(12, dim=1).values)
    assert torch.equal(products.gather(1, places), values)


def test_memory_is_bounded_by_blocks(monkeypatch):
    monkeypatch.setattr(search, "_faiss", lambda: None)
    training, unseen = trace_of(300, 4, seed=0), trace_of(40, 4, seed=1)
    whole = KNN(k=3).fit(training).score(unseen)
    monkeypatch.setattr(search, "_NUMBERS", 900)  # three queries at a time
    assert torch.allclose(KNN(k=3).fit(training).score(unseen), whole)


@pytest.mark.parametrize("cls", [KNN, NNGuide])
def test_fewer_rows_than_neighbours_use_all_and_say_so(library, cls):
    training = trace_of(4, 3, seed=0)
    monitor = cls(k=9).fit(training)
    assert "fewer than k = 9" in monitor.remedy_
    assert torch.allclose(monitor.score(training), cls(k=4).fit(training).score(training))


@pytest.mark.parametrize("cls", [KNN, NNGuide])
def test_a_sample_bounds_what_is_kept(cls):
    monitor = cls(k=2, limit=25).fit(trace_of(200, 6, seed=0))
    assert monitor.bank_.shape == (25, 6)


def test_a_zero_feature_has_no_direction_and_a_finite_score(library):
    training = trace_of(50, 3, seed=0)
    zero = Trace(torch.zeros(1, 3), {"penultimate": torch.zeros(1, 3)})
    assert KNN(k=5).fit(training).score(zero).item() == pytest.approx(1, abs=1e-6)
    assert NNGuide(k=5).fit(training).score(zero).item() == 0


@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
def test_a_broken_row_scores_nan(library, broken):
    training = trace_of(50, 3, seed=0)
    features = training.layer("penultimate")[:3].clone()
    features[1, 0] = broken
    trace = Trace(training.logits[:3], {"penultimate": features})
    for cls in (KNN, NNGuide):
        assert torch.isnan(cls(k=5).fit(training).score(trace)).tolist() == [False, True, False]


@pytest.mark.parametrize("arguments", [{"k": 0}, {"limit": 0}])
def test_arguments_out_of_range_are_refused(arguments):
    for cls in (KNN, NNGuide):
        with pytest.raises(InputError, match=f"expected .*{next(iter(arguments))} of at least 1"):
            cls(**arguments)
