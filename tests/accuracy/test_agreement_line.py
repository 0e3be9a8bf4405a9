"""Agreement on the line: networks that lie on a line by construction, the paper's formulae, one network."""

from itertools import combinations

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import nn

import assay
from assay.accuracy import companions, estimate_accuracy
from assay.accuracy.methods import AgreementLineDirect, AgreementLineSimple
from assay.accuracy.predictions import AccuracyReference, LabelledPredictions, Predictions
from assay.errors import InputError

METHODS = (AgreementLineSimple, AgreementLineDirect)
CLASSES = 50


def sure(classes):
    return assay.Trace(torch.from_numpy(9.0 * np.eye(CLASSES)[classes]))


def answers(labels, shares, generator):
    """Networks that find the same rows difficult, and are wrong at random.

    Two agree where the weaker one is right, and seldom elsewhere, so that agreement is on the line.
    """
    found, difficulty = [], generator.uniform(size=len(labels))
    for share in shares:
        wrong = difficulty >= share
        found.append(
            np.where(wrong, (labels + generator.integers(1, CLASSES, len(labels))) % CLASSES, labels)
        )
    return found


@pytest.fixture(scope="module")
def shifted():
    """Five networks whose accuracies lie on a line of slope 0.8 and intercept -0.5, as probits."""
    generator = np.random.default_rng(0)
    before = np.array([0.9, 0.95, 0.85, 0.8, 0.7])
    after = norm.cdf(0.8 * norm.ppf(before) - 0.5)
    labels = generator.integers(CLASSES, size=20_000)
    return labels, answers(labels, before, generator), answers(labels, after, generator), after[0]


def known(labels, before):
    predictions = Predictions.of(sure(before[0]), [sure(one) for one in before[1:]])
    return AccuracyReference(LabelledPredictions(predictions, labels), [], 100)


@pytest.mark.parametrize("method", METHODS)
def test_the_formulae_are_the_papers(method, shifted):
    labels, before, after, _ = shifted
    fitted = method().fit(known(labels, before))
    rows = Predictions.of(sure(after[0]), [sure(one) for one in after[1:]])
    found, _, _ = fitted.interval(fitted.sums(rows), len(rows), 0.95)
    pairs = list(combinations(range(5), 2))
    x = norm.ppf([(before[i] == before[j]).mean() for i, j in pairs])
    y = norm.ppf([(after[i] == after[j]).mean() for i, j in pairs])
    accuracies = norm.ppf([(one == labels).mean() for one in before])
    slope, intercept = np.polyfit(x, y, 1)
    if method is AgreementLineSimple:
        expected = norm.cdf(slope * accuracies[0] + intercept)
    else:
        system = np.array([[0.5 * (k in pair) for k in range(5)] for pair in pairs])
        right = [y[k] + slope * (accuracies[list(pair)].mean() - x[k]) for k, pair in enumerate(pairs)]
        expected = norm.cdf(np.linalg.lstsq(system, np.array(right), rcond=None)[0][0])
    assert found == pytest.approx(expected, rel=1e-9)


def test_the_accuracy_after_the_shift_is_found(shifted):
    labels, before, after, truth = shifted
    others = [sure(one) for one in before[1:]], [sure(one) for one in after[1:]]
    reference = assay.Trace(sure(before[0]).logits, labels=torch.from_numpy(labels))
    result = estimate_accuracy(reference, sure(after[0]), other=others, window=1000)
    for method in METHODS:
        found = result[method.name]
        # Of the rows that both get wrong, 2 % are wrong alike.
        assert found.value == pytest.approx(truth, abs=0.015)
        assert found.usable, found.note
    assert result["agreement of two networks"].value < 1.0


def test_the_interval_is_that_of_repeated_draws():
    generator, values, reaches = np.random.default_rng(1), [], []
    for _ in range(60):
        labels = generator.integers(CLASSES, size=1000)
        before, after = (answers(labels, shares, generator) for shares in ([0.9, 0.8, 0.7], [0.8, 0.7, 0.6]))
        fitted = AgreementLineDirect().fit(known(labels, before))
        rows = Predictions.of(sure(after[0]), [sure(one) for one in after[1:]])
        value, lower, upper = fitted.interval(fitted.sums(rows), 1000, 0.95)
        values.append(value - (after[0] == labels).mean())
        reaches.append((upper - lower) / 2)
    # 60 draws give a deviation to within 30 % at 3 sigma; the interval ignores that agreement and accuracy
    # of the same rows vary together, and may be wider.
    assert 0.7 < np.mean(reaches) / (1.96 * np.std(values)) < 2.0


def test_without_a_line_it_says_so(shifted):
    labels, before, _, _ = shifted
    fitted = AgreementLineSimple().fit(known(labels, before))
    same = Predictions.of(sure(before[0]), [sure(before[0])] * 4)
    assert "no line" in fitted.doubt(fitted.sums(same), len(same))
    generator = np.random.default_rng(2)
    torn = answers(labels, [0.3, 0.9, 0.4, 0.95, 0.5], generator)
    rows = Predictions.of(sure(torn[0]), [sure(one) for one in torn[1:]])
    assert "not on a line" in fitted.doubt(fitted.sums(rows), len(rows))


def test_networks_that_are_missing_in_operation_leave_it_out(shifted):
    labels, before, after, _ = shifted
    reference = assay.Trace(sure(before[0]).logits[:500], labels=torch.from_numpy(labels[:500]))
    estimator = assay.AccuracyEstimator().fit(reference, other=[sure(one[:500]) for one in before[1:]])
    result = estimator.estimate(estimator.count(sure(after[0][:500])))
    for method in (*(one.name for one in METHODS), "agreement of two networks"):
        assert np.isnan(result[method].value)
        assert "other networks" in result[method].note


def network(*, dropout):
    torch.manual_seed(0)
    middle = [nn.Dropout(0.5)] if dropout else []
    return assay.Network(nn.Sequential(nn.Linear(6, 32), nn.ReLU(), *middle, nn.Linear(32, 3)))


@pytest.mark.parametrize("dropout", [True, False])
def test_one_network_becomes_several(dropout):
    inputs = torch.randn(50, 6)
    subject = network(dropout=dropout)
    here, there = companions(subject, inputs, inputs, versions=3, seed=1)
    assert len(here) == len(there) == 3
    for one, other in zip(here, there, strict=True):
        torch.testing.assert_close(one.logits, other.logits)  # the same versions for both sets
        assert not torch.equal(one.logits, subject.observe(inputs).logits)
    if dropout:
        torch.testing.assert_close(here[2].logits, subject.dropout_logits(inputs, 3, 1)[2])


def test_an_augmentation_is_any_function():
    inputs = torch.randn(50, 6)
    subject = network(dropout=True)
    here, _ = companions(subject, inputs, inputs, augmentation=[torch.neg, torch.abs])
    torch.testing.assert_close(here[1].logits, subject.observe(inputs.abs()).logits)
    same, _ = companions(subject, inputs, inputs, augmentation=torch.neg, versions=2)
    torch.testing.assert_close(same[0].logits, same[1].logits)
    with pytest.raises(InputError, match="at least 2 versions"):
        companions(subject, inputs, inputs, versions=1)
    with pytest.raises(InputError, match="at least 2 versions"):
        companions(subject, inputs, inputs, augmentation=[torch.neg])
    with pytest.raises(InputError, match="floating-point"):
        companions(network(dropout=False), torch.ones(5, 6, dtype=torch.long), inputs)
