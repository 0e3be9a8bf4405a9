"""CoRP against kernel PCA written out, the kernel it stands for, and its authors' script."""

import numpy as np
import pytest
import torch

from assay import Trace
from assay.errors import InputError
from assay.monitors import CoRP


def trace_of(rows, seed, size=6):
    generator = torch.Generator().manual_seed(seed)
    features = (torch.randn(rows, size, generator=generator) + 1).relu()
    return Trace(torch.zeros(rows, 2), {"penultimate": features})


def unit(trace):
    features = trace.layer("penultimate").double().numpy()
    return features / np.linalg.norm(features, axis=1, keepdims=True)


@pytest.mark.parametrize("explained", [0.3, 0.9])
def test_the_score_is_what_principal_components_leave_over(explained):
    training, unseen = trace_of(400, 0), trace_of(30, 1)
    monitor = CoRP(frequencies=50, gamma=1.5, explained=explained, seed=3).fit(training)

    def mapped(trace):
        angles = unit(trace) @ monitor.frequencies_.double().numpy() + monitor.phases_.double().numpy()
        return np.sqrt(2 / 50) * np.cos(angles)

    mean = mapped(training).mean(axis=0)
    _, strengths, directions = np.linalg.svd(mapped(training) - mean)
    shares = np.cumsum(strengths**2) / (strengths**2).sum()
    axes = directions[: np.argmax(shares >= explained) + 1]
    centred = mapped(unseen) - mean
    expected = np.linalg.norm(centred - centred @ axes.T @ axes, axis=1)
    assert monitor.axes_.shape == (50, len(axes))
    assert np.allclose(monitor.score(unseen), expected, atol=1e-5)  # frequencies are in single precision


def test_the_map_stands_for_a_gaussian_kernel():
    trace = trace_of(20, 0)
    monitor = CoRP(frequencies=20_000, gamma=0.7)
    monitor.classes_, monitor.dimensions_ = 2, {"penultimate": 6}
    monitor.frequencies_, monitor.phases_ = monitor._random_map()
    mapped = monitor._fourier_features(trace.layer("penultimate")).double()
    distances = np.square(unit(trace)[:, None] - unit(trace)[None]).sum(axis=2)
    # The mean over 20,000 draws of products that deviate by about 1.
    assert np.allclose(mapped @ mapped.T, np.exp(-0.7 * distances), atol=0.03)


def test_scores_are_those_of_the_authors_script(published):
    draws = published.corp["frequencies"].float(), published.corp["phases"].float()
    monitor = CoRP(frequencies=len(draws[1]), gamma=2.0, explained=0.8)
    monitor._random_map = lambda: draws
    scores = monitor.fit(published.training).score(published.unseen)
    assert torch.allclose(scores, published.corp["scores"], atol=1e-5)


def test_rows_of_one_direction_teach_nothing_and_are_named():
    features = torch.arange(1.0, 5.0)[:, None] * torch.tensor([[1.0, 2.0]])
    trace = Trace(torch.zeros(4, 2), {"penultimate": features})
    monitor = CoRP(frequencies=8).fit(trace)
    assert "same direction" in monitor.remedy_
    assert torch.allclose(monitor.score(trace), torch.zeros(4, dtype=torch.float64), atol=1e-3)


@pytest.mark.parametrize("arguments", [{"gamma": 0.0}, {"frequencies": 1}, {"explained": 1.0}])
def test_arguments_out_of_range_are_refused(arguments):
    with pytest.raises(InputError, match="expected gamma above 0"):
        CoRP(**arguments)
