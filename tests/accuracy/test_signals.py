"""Signals against their papers' formulae written out naively, their closed forms, and their marks."""

import numpy as np
import pytest
import torch

import assay
from assay.accuracy import AccuracyEstimator, estimate_accuracy
from assay.accuracy.methods import (
    CalibratedVolatility,
    Dispersion,
    EnergyGap,
    MatrixNorm,
    NuclearNorm,
    WeightedNuclearNorm,
)
from assay.accuracy.predictions import AccuracyReference, LabelledPredictions, Predictions

CLASSES = 5


def predictions(count=60, seed=0, scale=2.0, width=None):
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(count, CLASSES, generator=generator, dtype=torch.float64)
    features = {} if width is None else {"penultimate": torch.randn(count, width, generator=generator)}
    return Predictions.of(assay.Trace(logits, features))


def signal_of(method, rows):
    return method.signal(method.sums(rows), len(rows))


@pytest.mark.parametrize(("scale", "taylor"), [(1.0, True), (30.0, False)])
def test_mano_is_the_norm_of_softmax_or_of_its_taylor_form(scale, taylor):
    rows = predictions(scale=scale)
    logits = torch.from_numpy(rows.logits)
    uniform = torch.full_like(logits, 1 / CLASSES)
    divergence = torch.nn.functional.cross_entropy(logits, uniform)  # the authors' criterion
    assert bool(divergence <= 5) is taylor
    centred = (logits - logits.mean(dim=1, keepdim=True)).numpy()
    powers = 1 + centred + centred**2 / 2 if taylor else np.exp(centred)
    normalised = powers / powers.sum(axis=1, keepdims=True)
    naive = np.linalg.norm(normalised.ravel(), ord=4) / (len(rows) * CLASSES) ** 0.25
    assert signal_of(MatrixNorm.from_state({"classes_": CLASSES}), rows) == pytest.approx(naive, rel=1e-9)


def test_mano_reads_probabilities_as_it_reads_logits():
    rows = predictions()
    method = MatrixNorm.from_state({"classes_": CLASSES})
    assert signal_of(method, Predictions.of(rows.probabilities)) == pytest.approx(signal_of(method, rows))


def test_the_energy_gap_is_the_papers_mde_less_log_n():
    rows = predictions()
    energies = -torch.logsumexp(torch.from_numpy(rows.logits), dim=1)
    mde = -torch.log_softmax(energies, dim=0).mean()
    method = EnergyGap.from_state({"centre_": -3.0})
    assert signal_of(method, rows) == pytest.approx(float(mde) - np.log(len(rows)), rel=1e-9)
    # Normal energies: log E exp(Z) - E Z is half their variance. 1e6 draws give it to within 1 %.
    normal = np.random.default_rng(0).normal(scale=0.8, size=10**6)
    sums = np.array([normal.sum(), np.exp(normal).sum()])
    assert method.signal(sums, 10**6) == pytest.approx(0.32, rel=0.01)


def test_dispersion_is_the_scatter_between_predicted_classes():
    rows = predictions(width=7)
    for from_features in (True, False):
        values = rows.features if from_features else rows.probabilities
        total = 0.0
        for k in range(CLASSES):
            own = values[rows.classes == k]
            total += len(own) / len(rows) * ((own.mean(axis=0) - values.mean(axis=0)) ** 2).sum()
        method = Dispersion.from_state({"from_features_": from_features})
        assert signal_of(method, rows) == pytest.approx(np.log(total / (CLASSES - 1)), rel=1e-6)


def test_sure_predictions_score_the_bhattacharyya_coefficient():
    expected = np.array([0.6, 0.3, 0.1, 0.0, 0.0])
    method = WeightedNuclearNorm.from_state({"shares_": expected})
    for predicted in ([0.6, 0.3, 0.1, 0.0, 0.0], [0.2] * 5, [0.0, 0.0, 0.0, 0.5, 0.5]):
        sure = np.repeat(np.eye(CLASSES), np.round(100 * np.array(predicted)).astype(int), axis=0)
        coefficient = np.sqrt(expected * predicted).sum()
        assert signal_of(method, Predictions(sure)) == pytest.approx(coefficient, abs=1e-6)


def test_with_balanced_classes_the_weights_change_nothing():
    rows = predictions()
    weighted = WeightedNuclearNorm.from_state({"shares_": np.full(CLASSES, 1 / CLASSES)})
    assert signal_of(weighted, rows) == pytest.approx(signal_of(NuclearNorm(), rows), rel=1e-9)
    naive = np.linalg.svd(rows.probabilities * np.sqrt([0.5, 0.2, 0.1, 0.1, 0.1]), compute_uv=False).sum()
    weighted = WeightedNuclearNorm.from_state({"shares_": np.array([0.5, 0.2, 0.1, 0.1, 0.1])})
    assert signal_of(weighted, rows) == pytest.approx(naive / np.sqrt(len(rows)), rel=1e-9)


@pytest.mark.parametrize(
    "method",
    [
        MatrixNorm.from_state({"classes_": CLASSES}),
        EnergyGap.from_state({"centre_": 0.0}),
        Dispersion.from_state({"from_features_": True}),
        WeightedNuclearNorm.from_state({"shares_": np.full(CLASSES, 0.2)}),
    ],
    ids=lambda method: method.name,
)
def test_sums_of_parts_add_up(method):
    trace = assay.Trace(torch.randn(40, CLASSES), {"penultimate": torch.randn(40, 3)})
    whole, parts = Predictions.of(trace), [Predictions.of(trace[:13]), Predictions.of(trace[13:])]
    np.testing.assert_allclose(method.sums(parts[0]) + method.sums(parts[1]), method.sums(whole), rtol=1e-6)


def scattered(count, classes, present, share, seed, surety=8.0):
    """A sure network on `present` of `classes` classes; `share` of its rows answer any class at random."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(present, size=count)
    wrong = generator.uniform(size=count) < share
    answers = np.where(wrong, generator.integers(classes, size=count), labels)
    logits = generator.normal(size=(count, classes))
    logits[np.arange(count), answers] += surety
    return assay.Trace(torch.from_numpy(logits), labels=torch.from_numpy(labels))


SHARES = (0.2, 0.35, 0.5, 0.65, 0.8)


def test_absent_classes_that_noise_brings_up_raise_the_nuclear_norm_and_not_the_weighted_one():
    """75 of 214 classes occur, and byte noise scatters answers over all of them."""
    reference = scattered(600, 214, 75, 0.1, 0)
    perturbed = [scattered(600, 214, 75, share, 1 + k) for k, share in enumerate(SHARES)]
    clean = scattered(600, 214, 75, 0.1, 9)
    result = estimate_accuracy(reference, clean, perturbed=perturbed)
    assert "does not follow accuracy" in result["nuclear norm"].note
    assert result["nuclear norm, weighted"].usable
    truth = float(clean.correct.double().mean())
    assert result["nuclear norm, weighted"].value == pytest.approx(truth, abs=0.04)
    assert abs(result["nuclear norm"].value - truth) > 0.1  # a constant, as it was measured


def test_a_flat_signal_says_so():
    """1,000 classes and a network so sure that the central margins are all one: log VC is a constant."""
    sets = [scattered(400, 1000, 1000, share, k, surety=60.0) for k, share in enumerate((0.1, *SHARES))]
    estimator = AccuracyEstimator(window=100).fit(sets[0], sets[1:])
    found = {method.name: method for method in estimator.methods_}
    assert found["calibrated log VC"].note_.startswith("flat")
    assert not found["calibrated log VC"].usable_
    assert not estimator.estimate(estimator.count(sets[3]))["calibrated log VC"].usable


def hand_made(pairs):
    """A method taught by these (signal, accuracy) pairs alone."""

    class HandMade(CalibratedVolatility):
        name = "hand-made"
        rising = True

        def sums(self, rows):
            return rows.probabilities[:1, 0]

        def signal(self, sums, rows):
            return float(sums[0])

    def taught(signal, accuracy, count=200):
        probabilities = np.tile([signal, 1 - signal], (count, 1))
        predicted = int(signal <= 0.5)
        right = np.arange(count) < round(accuracy * count)
        labels = np.where(right, predicted, 1 - predicted)
        return LabelledPredictions(Predictions(probabilities), labels)

    sets = [taught(*pair) for pair in pairs]
    return HandMade().fit(AccuracyReference(sets[0], sets[1:], 5))


@pytest.mark.parametrize(
    ("pairs", "note"),
    [
        ([(0.9, 0.9), (0.8, 0.8), (0.7, 0.7), (0.6, 0.6), (0.55, 0.5), (0.52, 0.4), (0.51, 0.3)], ""),
        ([(0.9, 0.9), (0.8, 0.89), (0.7, 0.88), (0.6, 0.87)], "taught nothing"),
        ([(0.9, 0.9), (0.9, 0.7), (0.9, 0.5), (0.9, 0.3)], "flat"),
        ([(0.6, 0.9), (0.7, 0.7), (0.8, 0.5), (0.9, 0.3)], "does not follow accuracy"),
        # Up, then down: rank correlation 0.
        ([(0.6, 0.3), (0.7, 0.6), (0.8, 0.9), (0.85, 0.6), (0.9, 0.3)], "does not follow accuracy"),
    ],
)
def test_the_rule_for_a_signal_that_does_not_work(pairs, note):
    method = hand_made(pairs)
    assert method.note_.startswith(note)
    assert method.usable_ is (note == "")


def test_a_loose_signal_is_marked_by_its_error():
    method = hand_made(
        [(0.60, 0.1), (0.62, 0.12), (0.64, 0.11), (0.66, 0.13), (0.68, 0.9), (0.70, 0.14), (0.72, 0.95)]
    )
    assert method.note_.startswith("follows accuracy loosely")
