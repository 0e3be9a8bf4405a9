"""OpenMax against the paper's algorithms in loops and pytorch-ood, its distribution against scipy."""

import numpy as np
import pytest
import torch
from scipy import optimize, stats

from assay import Trace
from assay.errors import InputError
from assay.monitors import OpenMax
from assay.monitors.open_max import _STEP, _weibull
from assay.monitors.parts.reservoir import Reservoir
from assay.monitors.parts.row_keys import RowKeys


def trace_of(rows, seed, classes=4, labelled=True):
    generator = torch.Generator().manual_seed(seed)
    own = torch.arange(rows) % classes
    logits = torch.randn(rows, classes, generator=generator) + 4 * torch.eye(classes)[own]
    return Trace(logits, labels=own if labelled else None)


def most_likely(values):
    """By the likelihood itself; in units in which both numbers are near one."""

    def cost(point):
        shape, scale = 1e4 * np.exp(point[0]), 1e4 + point[1]
        return -stats.weibull_min.logpdf(values, shape, scale=scale).sum()

    found = optimize.minimize(cost, [0.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-13})
    return 1e4 + found.x[1], 1e4 * np.exp(found.x[0])


def by_the_paper(training, unseen, tail, top):
    """Probability of the unknown class, Algorithms 1 and 2."""
    models = {}
    for label in range(training.logits.shape[1]):
        rows = training.logits[training.correct & (training.labels == label)].double().numpy()
        mean = rows.mean(axis=0)
        distances = np.sort(np.linalg.norm(rows - mean, axis=1))[-tail:]
        models[label] = mean, distances[0], most_likely(distances - distances[0] + 1e4)
    answers = []
    for logits in unseen.logits.double().numpy():
        revised, unknown = logits.copy(), 0.0
        for rank, label in enumerate(np.argsort(logits)[::-1][:top], start=1):
            mean, smallest, (scale, shape) = models[label]
            distance = np.linalg.norm(logits - mean) - smallest + 1e4
            outside = stats.weibull_min.cdf(distance, shape, scale=scale) * (top + 1 - rank) / top
            revised[label] *= 1 - outside
            unknown += logits[label] * outside
        powers = np.exp([unknown, *revised])
        answers.append(powers[0] / powers.sum())
    return np.array(answers)


@pytest.mark.parametrize(("tail", "top"), [(20, 4), (7, 2)])
def test_the_unknown_class_is_that_of_the_paper(tail, top):
    training, unseen = trace_of(200, 0), trace_of(30, 1)
    assert not training.correct.all()
    scores = OpenMax(tail=tail, top=top).fit(training).score(unseen)
    # The reference finds its most likely distribution by search.
    assert np.allclose(torch.sigmoid(scores), by_the_paper(training, unseen, tail, top), atol=1e-5)


def test_scores_are_those_of_pytorch_ood(published):
    assert published.match("OpenMax", OpenMax(tail=20, top=10))


@pytest.mark.parametrize("shift", [0.0, 1e4])
def test_the_distribution_is_the_most_likely_one(shift):
    values = shift + np.random.default_rng(0).weibull(1.7, size=50)
    scale, shape = _weibull(values)

    def likelihood(moved):
        return stats.weibull_min.logpdf(values, shape * moved[1], scale=scale * moved[0]).sum()

    step = 1e-7 if shift else 1e-4
    best = likelihood((1, 1))
    assert all(likelihood((1 + step * i, 1)) < best > likelihood((1, 1 + step * i * 1e3)) for i in (-1, 1))


def test_rows_without_labels_teach_their_prediction():
    training = trace_of(100, 0)
    right, unseen = training[training.correct], trace_of(9, 1)
    named = OpenMax().fit(right).score(unseen)
    assert torch.equal(OpenMax().fit(Trace(right.logits)).score(unseen), named)
    assert torch.equal(OpenMax().fit(training).score(unseen), named)  # the others teach nothing


def test_a_class_never_seen_is_infinitely_far_and_named():
    training = trace_of(90, 0, classes=4, labelled=False)
    training = training[training.predictions != 2]
    monitor = OpenMax(top=1).fit(training)
    assert "class 2" in monitor.remedy_
    only = Trace(torch.tensor([[0.0, 0.0, 5.0, 0.0]]))
    # All of the logit moves: softmax of (5, 0, 0, 0, 0).
    assert monitor.score(only).item() == pytest.approx(5 - np.log(4))


def test_a_class_with_one_row_takes_that_row_alone():
    training = Trace(torch.tensor([[5.0, 0.0], [4.0, 0.0], [6.0, 1.0], [0.0, 3.0]]))
    monitor = OpenMax().fit(training)
    assert "class 1 with one distance" in monitor.remedy_
    assert monitor.shape_[1] == _STEP
    near, far = monitor.score(Trace(torch.tensor([[0.0, 3.0], [0.0, 3.5]]))).tolist()
    assert np.isfinite([near, far]).all()
    assert near < far


def test_a_limit_keeps_a_sample_of_every_class():
    training = trace_of(400, 0)
    monitor = OpenMax(limit=10, seed=3).fit(training)
    kept, rows = Reservoir(10), training.correct & (training.predictions == 1)
    kept.add(RowKeys(3).next(training.logits)[rows], training.logits[rows])
    assert torch.allclose(monitor.centres_[1], kept.rows().double().mean(dim=0))
    assert len(kept.rows()) == 10


@pytest.mark.parametrize("arguments", [{"tail": 0}, {"top": 0}, {"limit": 0}])
def test_arguments_out_of_range_are_refused(arguments):
    with pytest.raises(InputError, match=r"expected (tail and top|a limit) of at least 1"):
        OpenMax(**arguments)
