"""Mahalanobis distances against scipy's, closed forms, and data that determines no covariance."""

import numpy as np
import pytest
import sklearn.covariance as sk
import torch
from scipy import stats
from scipy.spatial.distance import cdist

from assay import Network, Trace
from assay.errors import InputError, NotFittedError
from assay.monitors import Mahalanobis, RelativeMahalanobis

CLASSES = 3


def trace_of(features, labels=None, logits=None):
    return Trace(
        torch.zeros(len(features), CLASSES) if logits is None else logits, {"penultimate": features}, labels
    )


def gaussian(rows, size, seed, spread=1.0, apart=3.0):
    """Classes with one covariance, far from the origin and from each other."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(rows) % CLASSES
    mixing = torch.randn(size, size, generator=torch.Generator().manual_seed(0)) * spread
    centres = torch.randn(CLASSES, size, generator=torch.Generator().manual_seed(1)) * apart + 10
    return centres[labels] + torch.randn(rows, size, generator=generator) @ mixing, labels


@pytest.fixture(scope="module")
def training():
    return trace_of(*gaussian(400, 6, seed=2))


@pytest.fixture(scope="module")
def unseen():
    return trace_of(gaussian(50, 6, seed=3, spread=2.0)[0])


def class_rows(trace):
    values = trace.layer("penultimate").double().numpy()
    return [values[trace.labels.numpy() == number] for number in range(CLASSES)]


def tied(trace):
    centred = np.concatenate([rows - rows.mean(axis=0) for rows in class_rows(trace)])
    means = np.array([rows.mean(axis=0) for rows in class_rows(trace)])
    return means, centred


def square_distances(points, means, covariance):
    return cdist(points.double().numpy(), means, "mahalanobis", VI=np.linalg.inv(covariance)) ** 2


# Scores are computed in single precision where that costs at most 2e-6 of their value (covariance.py).
SINGLE = 1e-5


@pytest.mark.parametrize("estimator", ["empirical", "ledoit_wolf", "oas"])
def test_tied_distances_are_scipys(training, unseen, estimator):
    means, centred = tied(training)
    covariance = {
        "empirical": lambda: centred.T @ centred / len(centred),
        "ledoit_wolf": lambda: sk.ledoit_wolf(centred, assume_centered=True)[0],
        "oas": lambda: sk.OAS(assume_centered=True).fit(centred).covariance_,
    }[estimator]()
    monitor = Mahalanobis(estimator=estimator).fit(training)
    expected = square_distances(unseen.layer("penultimate"), means, covariance)
    assert np.allclose(monitor.distances(unseen), expected, rtol=SINGLE)
    assert np.allclose(monitor.score(unseen), expected.min(axis=1), rtol=SINGLE)
    assert monitor.remedy_ == ""


@pytest.mark.parametrize("estimator", ["empirical", "ledoit_wolf", "oas"])
def test_per_class_distances_are_scipys(training, unseen, estimator):
    columns = []
    for rows in class_rows(training):
        centred = rows - rows.mean(axis=0)
        covariance = {
            "empirical": lambda centred=centred: centred.T @ centred / len(centred),
            "ledoit_wolf": lambda centred=centred: sk.ledoit_wolf(centred, assume_centered=True)[0],
            "oas": lambda centred=centred: sk.OAS(assume_centered=True).fit(centred).covariance_,
        }[estimator]()
        columns.append(square_distances(unseen.layer("penultimate"), rows.mean(axis=0)[None], covariance))
    monitor = Mahalanobis(covariance="per_class", estimator=estimator).fit(training)
    assert np.allclose(monitor.distances(unseen), np.hstack(columns), rtol=SINGLE)


def test_relative_distances_subtract_those_to_one_gaussian_of_all(training, unseen):
    means, centred = tied(training)
    points, everything = unseen.layer("penultimate"), training.layer("penultimate").double().numpy()
    to_classes = square_distances(points, means, centred.T @ centred / len(centred))
    to_all = square_distances(points, everything.mean(axis=0)[None], np.cov(everything.T, bias=True))
    found = RelativeMahalanobis().fit(training).score(unseen)
    # A difference of numbers about ten times its size.
    assert np.allclose(found, to_classes.min(axis=1) - to_all[:, 0], rtol=SINGLE, atol=10 * SINGLE)


def test_the_distance_of_a_gaussian_class_is_chi_square():
    features, labels = gaussian(60_000, 6, seed=4, apart=50.0)
    fresh, _ = gaussian(3000, 6, seed=5, apart=50.0)
    scores = Mahalanobis().fit(trace_of(features, labels)).score(trace_of(fresh))
    assert stats.kstest(scores, stats.chi2(6).cdf).pvalue > 0.01


def test_ill_conditioned_features_are_scored_in_double_precision():
    features, labels = gaussian(500, 6, seed=6)
    features = features.double()
    features[:, 5] = features[:, 4] + 1e-4 * features[:, 5]
    features = features.float()
    trace = trace_of(features, labels)
    means, centred = tied(trace)
    expected = square_distances(features, means, centred.T @ centred / len(centred)).min(axis=1)
    # The condition number is about 1e10: either side keeps six of sixteen digits, single precision three.
    assert np.allclose(Mahalanobis().fit(trace).score(trace), expected, rtol=1e-5)


def test_classes_very_far_apart_lose_no_digits():
    features, labels = gaussian(600, 6, seed=7, apart=1e4)
    trace = trace_of(features, labels)
    means, centred = tied(trace)
    expected = square_distances(features, means, centred.T @ centred / len(centred)).min(axis=1)
    for covariance in ("tied", "per_class"):
        scores = Mahalanobis(covariance=covariance).fit(trace).score(trace)
        assert scores.mean() == pytest.approx(6, rel=0.05)
    assert np.allclose(Mahalanobis().fit(trace).score(trace), expected, rtol=1e-5)


def test_rows_without_labels_are_fitted_under_their_predictions(training, unseen):
    logits = torch.nn.functional.one_hot(training.labels, CLASSES).float()
    unlabelled = trace_of(training.layer("penultimate"), logits=logits)
    for cls in (Mahalanobis, RelativeMahalanobis):
        assert torch.equal(cls().fit(unlabelled).score(unseen), cls().fit(training).score(unseen))


def test_a_class_without_rows_is_infinitely_far(training, unseen):
    some = training[training.labels != 1]
    monitor = Mahalanobis().fit(some)
    assert torch.isinf(monitor.distances(unseen)).all(dim=0).tolist() == [False, True, False]
    assert torch.isfinite(monitor.score(unseen)).all()


def singular(kind):
    features, labels = gaussian(60, 6, seed=8)
    if kind == "constant feature":
        features[:, 2] = 7.0
    elif kind == "dependent features":
        features[:, 2] = features[:, 3]
    elif kind == "more dimensions than rows":
        features, labels = gaussian(9, 20, seed=8)
    elif kind == "a class with one row":
        keep = (labels != 1) | (torch.arange(60) == 1)
        features, labels = features[keep], labels[keep]
    elif kind == "one row per class":
        features, labels = features[:3], labels[:3]
    return trace_of(features, labels)


@pytest.mark.parametrize(
    "kind",
    [
        "constant feature",
        "dependent features",
        "more dimensions than rows",
        "a class with one row",
        "one row per class",
    ],
)
@pytest.mark.parametrize("covariance", ["tied", "per_class"])
@pytest.mark.parametrize("estimator", ["empirical", "ledoit_wolf", "oas"])
def test_what_determines_no_covariance_gets_finite_scores_and_a_stated_remedy(kind, covariance, estimator):
    trace = singular(kind)
    monitor = Mahalanobis(covariance=covariance, estimator=estimator).fit(trace)
    near = monitor.score(trace)
    far = monitor.score(trace_of(trace.layer("penultimate") + 100))
    assert torch.isfinite(near).all()
    assert torch.isfinite(far).all()
    assert (far > near).all()
    needs_remedy = kind == "one row per class" or (
        estimator == "empirical" and (kind != "a class with one row" or covariance == "per_class")
    )
    assert bool(monitor.remedy_) or not needs_remedy
    relative = RelativeMahalanobis(estimator=estimator).fit(trace)
    assert torch.isfinite(relative.score(trace)).all()


def test_a_lone_row_of_a_class_takes_the_tied_covariance():
    trace = singular("a class with one row")
    alone = Mahalanobis(covariance="per_class").fit(trace)
    assert "class 1 (1 rows) was singular and was replaced by the tied one" in alone.remedy_
    column = Mahalanobis().fit(trace).distances(trace)[:, 1]
    assert torch.allclose(alone.distances(trace)[:, 1], column, rtol=1e-4, atol=1e-4)


def test_perturbation_moves_towards_the_nearest_class():
    # The features are the inputs, so the gradient of the distance is known: 2 Sigma^-1 (x - mu).
    module = torch.nn.Sequential(torch.nn.Identity(), torch.nn.Linear(6, CLASSES))
    network = Network(module)
    features, labels = gaussian(400, 6, seed=9)
    monitor = Mahalanobis(network=network, magnitude=0.1).fit(network.observe((features, labels)))
    points = gaussian(20, 6, seed=10, spread=2.0)[0]
    trace = network.observe(points, keep_inputs=True)
    means, centred = tied(trace_of(features, labels))
    inverse = np.linalg.inv(centred.T @ centred / len(centred))
    nearest = means[square_distances(points, means, np.linalg.inv(inverse)).argmin(axis=1)]
    moved = points.numpy() - 0.1 * np.sign((points.numpy() - nearest) @ inverse)
    expected = square_distances(torch.tensor(moved), means, np.linalg.inv(inverse)).min(axis=1)
    assert np.allclose(monitor.score(trace), expected, rtol=1e-4)
    assert (
        monitor.score(trace) < Mahalanobis().fit(trace_of(features, labels)).score(trace_of(points))
    ).all()


@pytest.mark.parametrize(
    "arguments", [{"estimator": "mle"}, {"covariance": "full"}, {"magnitude": 0.1}, {"magnitude": -1.0}]
)
def test_arguments_that_make_no_sense_are_refused(arguments):
    with pytest.raises(InputError, match="expected"):
        Mahalanobis(**arguments)


def test_distances_before_fitting_are_a_clear_error(unseen):
    with pytest.raises(NotFittedError, match="fit"):
        Mahalanobis().distances(unseen)
