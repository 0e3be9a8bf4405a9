"""Each estimate where its assumption holds, against the truth; its failure where it does not; its sums."""

import numpy as np
import pandas as pd
import pytest
import torch

import assay
from assay.accuracy import AccuracyEstimator, estimate_accuracy
from assay.accuracy.methods import METHODS, AverageConfidence, CalibratedSignal, EnergyGap, LabelShift
from assay.errors import AssayWarning, InputError, NotFittedError
from assay.storage import storable

COUNT, CLASSES = 4000, 4
SIGNALS = [method.name for method in METHODS if issubclass(method, CalibratedSignal)]


def blurred_classes(count, seed, noise=1.0, prior=None, overconfidence=1.0):
    """Logits of a Bayes classifier for Gaussian classes at the corners; noise is known to it only as 1."""
    generator = np.random.default_rng(seed)
    labels = generator.choice(CLASSES, count, p=prior)
    inputs = 2.0 * np.eye(CLASSES)[labels] + noise * generator.normal(size=(count, CLASSES))
    return assay.Trace(torch.from_numpy(2.0 * overconfidence * inputs), labels=torch.from_numpy(labels))


def accuracy(trace):
    return float(trace.correct.double().mean())


@pytest.fixture(scope="module")
def reference():
    return blurred_classes(COUNT, 0)


def test_without_a_shift_every_method_finds_the_accuracy(reference):
    operational = blurred_classes(COUNT, 1)
    result = estimate_accuracy(reference, operational, other=(reference, operational))
    assert len(result.estimates) == 17  # all but the two that need three networks
    for estimate in result.estimates:
        if estimate.note:
            assert estimate.method in SIGNALS
            continue
        # Two samples of 4,000 rows: 2 standard errors are 2 points. Signals are coarser and have to say so.
        reach = (estimate.upper - estimate.lower) / 2 if estimate.method in SIGNALS else 0.03
        assert estimate.value == pytest.approx(accuracy(operational), abs=reach), estimate.method
        assert estimate.lower <= estimate.value <= estimate.upper
        assert estimate.assumption


def test_rows_that_are_harder_for_known_reasons_are_seen_by_calibrated_confidence(reference):
    """A calibrated classifier on an easier or harder mix of the same rows: CBPE's assumption."""
    mixed = blurred_classes(3 * COUNT, 3)
    mixed = mixed[mixed.probabilities.amax(dim=1) < 0.9]
    result = estimate_accuracy(reference, mixed)
    truth = accuracy(mixed)
    assert result["calibrated confidence (CBPE)"].value == pytest.approx(truth, abs=0.03)
    assert result["average confidence"].value == pytest.approx(truth, abs=0.03)
    assert abs(result["reference accuracy"].value - truth) > 0.1


def test_overconfidence_fools_average_confidence_and_not_its_calibrated_form():
    reference, operational = (blurred_classes(COUNT, seed, overconfidence=4.0) for seed in (4, 5))
    result = estimate_accuracy(reference, operational)
    assert result["average confidence"].value - accuracy(operational) > 0.1
    for method in ("difference of confidences (DoC)", "calibrated confidence (CBPE)", "ATC, confidence"):
        assert result[method].value == pytest.approx(accuracy(operational), abs=0.03)


def test_label_shift_is_seen_by_bbse():
    generator = np.random.default_rng(6)

    # Class 0 is easy, class 3 hard: the accuracy depends on how frequent they are.
    def draw(prior, seed):
        labels = np.random.default_rng(seed).choice(CLASSES, COUNT, p=prior)
        wrong = generator.uniform(size=COUNT) < np.array([0.02, 0.1, 0.2, 0.45])[labels]
        predicted = np.where(wrong, (labels + 1) % CLASSES, labels)
        logits = 3.0 * np.eye(CLASSES)[predicted] + 0.1 * generator.normal(size=(COUNT, CLASSES))
        return assay.Trace(torch.from_numpy(logits), labels=torch.from_numpy(labels))

    reference, operational = draw([0.25] * 4, 7), draw([0.05, 0.1, 0.15, 0.7], 8)
    result = estimate_accuracy(reference, operational)
    found, truth = result["label shift (BBSE)"], accuracy(operational)
    assert found.value == pytest.approx(truth, abs=0.03)
    assert abs(result["average confidence"].value - truth) > 0.1


def test_the_interval_of_label_shift_is_that_of_repeated_draws():
    joint = np.array([[0.30, 0.05, 0.02], [0.03, 0.25, 0.05], [0.01, 0.04, 0.25]])
    shifted = joint * [0.5, 1.0, 1.8]
    shifted /= shifted.sum()
    generator, values, reaches = np.random.default_rng(0), [], []
    for _ in range(500):
        confusion = generator.multinomial(2000, joint.ravel()).reshape(3, 3).astype(float)
        method = LabelShift.from_state({"confusion_": confusion})
        drawn = generator.multinomial(1500, shifted.ravel()).reshape(3, 3)
        value, lower, upper = method.interval(drawn.sum(axis=1).astype(float), 1500, 0.95)
        values.append(value - np.trace(drawn) / 1500)
        reaches.append((upper - lower) / 2)
    # 500 draws give a deviation to within 10 % at 3 sigma.
    assert np.mean(reaches) == pytest.approx(1.96 * np.std(values), rel=0.1)
    assert np.mean(values) == pytest.approx(0.0, abs=0.003)


def test_intervals_hold_the_accuracy_as_often_as_they_say():
    hits = {}
    for seed in range(60):
        reference, operational = blurred_classes(500, 100 + seed), blurred_classes(500, 500 + seed)
        result = estimate_accuracy(reference, operational, window=250, level=0.9)
        for one in result.estimates:
            hits.setdefault(one.method, []).append(one.lower <= accuracy(operational) <= one.upper)
    # 60 draws at 90 %: fewer than 46 has a chance of 1 in 1,000.
    assert {method: sum(found) for method, found in hits.items() if sum(found) < 46} == {}


def test_thresholds_split_off_as_many_reference_rows_as_are_wrong(reference):
    for method in AccuracyEstimator().fit(reference).methods_:
        if method.name.startswith("ATC"):
            assert method.shift_ == pytest.approx(0.0, abs=1e-9)


def test_the_nuclear_norm_is_that_of_the_singular_values(reference):
    estimator = AccuracyEstimator().fit(reference)
    method = next(one for one in estimator.methods_ if one.name == "nuclear norm")
    rows = reference.probabilities.numpy()[:300]
    signal = method.signal(rows.T @ rows, 300)
    assert signal == pytest.approx(np.linalg.svd(rows, compute_uv=False).sum() / np.sqrt(300 * CLASSES))


def fading(noise, seed):
    """Noise that the classifier notices: it is less sure."""
    return blurred_classes(COUNT, seed, noise=noise, overconfidence=1 / noise)


def test_a_shift_like_the_perturbations_is_read_off_the_signals():
    reference = blurred_classes(COUNT, 10)
    perturbed = [fading(noise, 11 + k) for k, noise in enumerate((1.2, 1.5, 2, 2.5, 3))]
    operational = fading(1.7, 20)
    result = estimate_accuracy(reference, operational, perturbed=perturbed)
    for method in SIGNALS:
        found = result[method]
        assert found.usable, (method, found.note)
        assert found.lower <= accuracy(operational) <= found.upper
    assert abs(result["reference accuracy"].value - accuracy(operational)) > 0.1


def test_a_signal_that_moves_against_accuracy_says_so(reference):
    """Noise that the classifier mistakes for evidence: it is surer, and the nuclear norm rises."""
    perturbed = [blurred_classes(COUNT, 11 + k, noise=noise) for k, noise in enumerate((1.2, 1.5, 2, 2.5, 3))]
    found = estimate_accuracy(reference, blurred_classes(COUNT, 20, noise=1.7), perturbed=perturbed)[
        "nuclear norm"
    ]
    assert "does not follow accuracy" in found.note
    assert not found.usable
    assert found.lower < found.value < found.upper  # it stays in the table


def test_no_method_sees_labels_that_became_wrong(reference):
    operational = blurred_classes(COUNT, 21)
    generator = torch.Generator().manual_seed(0)
    noise = torch.randint(0, CLASSES, (COUNT,), generator=generator)
    keep = torch.rand(COUNT, generator=generator) < 0.6
    wrong = assay.Trace(operational.logits, labels=torch.where(keep, operational.labels, noise))
    result = estimate_accuracy(reference, wrong)
    assert min(one.value for one in result.estimates if one.method not in SIGNALS) - accuracy(wrong) > 0.15


def test_counts_of_parts_add_up_to_the_whole(reference, tmp_path):
    estimator = AccuracyEstimator(window=500).fit(reference, other=blurred_classes(COUNT, 0))
    operational = blurred_classes(2000, 22)
    assay.save(estimator, tmp_path / "estimator")
    device = assay.load(tmp_path / "estimator")
    parts = [device.count(operational[k : k + 500], operational[k : k + 500]) for k in range(0, 2000, 500)]
    assay.save(parts[0], tmp_path / "counts")
    parts[0] = assay.load(tmp_path / "counts")
    merged = estimator.estimate(parts[0] + parts[1] + parts[2] + parts[3])
    whole = estimator.estimate(estimator.count(operational, operational))
    for one, other in zip(merged.estimates, whole.estimates, strict=True):
        # The same sums in another order.
        assert one.value == pytest.approx(other.value, abs=1e-12, nan_ok=True)
    assert [one.method for one in whole.estimates if not one.value >= 0] == ["importance weighting (PAPE)"]
    assert parts[0].to_frame()["sum"].notna().all()


def test_wrong_use_is_one_sentence(reference):
    operational = blurred_classes(200, 23)
    with pytest.raises(InputError, match="with labels"):
        estimate_accuracy(assay.Trace(reference.logits), operational)
    with pytest.raises(InputError, match="classes as on the reference"):
        estimate_accuracy(reference, assay.Trace(torch.randn(200, 7)))
    with pytest.raises(InputError, match="at least one window"):
        estimate_accuracy(reference, operational, perturbed=[operational[:50]] * 3)
    with pytest.raises(InputError, match="at least two perturbed"):
        estimate_accuracy(reference, operational, perturbed=[reference])
    with pytest.raises(InputError, match="same"):
        estimate_accuracy(reference, operational, other=(reference, reference))
    with pytest.raises(InputError, match="between 0 and 1"):
        estimate_accuracy(reference, operational, level=95)
    with pytest.raises(InputError, match="labels from 0"):
        estimate_accuracy(assay.Trace(reference.logits, labels=reference.labels + 3), operational)
    one, two = AccuracyEstimator().fit(reference), AccuracyEstimator(seed=1).fit(reference)
    with pytest.raises(InputError, match="same fitted"):
        one.count(operational) + two.count(operational)
    with pytest.raises(InputError, match="this estimator"):
        one.estimate(two.count(operational))
    with pytest.raises(InputError, match="expected a method"):
        estimate_accuracy(reference, operational)["tea leaves"]


def test_a_handful_of_operational_rows_is_enough_for_what_needs_no_window(reference):
    result = estimate_accuracy(reference, blurred_classes(3, 25))
    assert "calibrated log VC" not in result.to_frame()["method"].tolist()
    assert result["average confidence"].upper - result["average confidence"].lower > 0.3


def test_the_table_explains_itself(reference):
    result = estimate_accuracy(reference, blurred_classes(COUNT, 24, noise=2.0))
    frame = result.to_frame()
    assert list(frame.columns) == ["method", "value", "lower", "upper", "note", "assumption", "counted"]
    assert "single methods put it between" in result.summary()
    assert "reference" in result.plot().axes[0].get_legend().get_texts()[0].get_text()


def test_an_estimator_learns_by_fit_and_is_known_by_what_it_learned(reference, tmp_path):
    estimator = AccuracyEstimator(window=500)
    for use in (lambda: estimator.count(reference), lambda: estimator.estimate(None)):
        with pytest.raises(NotFittedError, match="call fit"):
            use()
    assert estimator.fit(reference) is estimator
    assay.save(estimator, tmp_path / "estimator")
    back = assay.load(tmp_path / "estimator")
    assert back.fingerprint == estimator.fingerprint
    assert AccuracyEstimator(window=500).fit(reference).fingerprint == estimator.fingerprint
    assert AccuracyEstimator(window=500).fit(reference[:3000]).fingerprint != estimator.fingerprint
    assert [method.name for method in back.methods_] == [method.name for method in estimator.methods_]
    before = estimator.fingerprint
    with pytest.raises(InputError, match="at least one window"):
        estimator.fit(reference, [reference[:50]] * 3)
    assert estimator.fingerprint == before


def test_without_a_window_a_short_reference_is_one_window(reference):
    estimator = AccuracyEstimator().fit(reference[:300])
    assert {method.window_ for method in estimator.methods_ if method.name in SIGNALS} == {300}
    with pytest.raises(InputError, match="at least 20 rows"):
        AccuracyEstimator().fit(reference[:19])


def test_each_method_has_a_file_and_a_name_of_its_own():
    assert (
        len({method.name for method in METHODS})
        == len({method.__module__ for method in METHODS})
        == len(METHODS)
    )


def test_a_method_takes_part_once_it_is_listed(reference, monkeypatch):
    @storable("tests.Halved")
    class Halved(AverageConfidence):
        name = "half the confidence"

        def scores(self, predictions):
            return predictions.confidence / 2

    monkeypatch.setattr("assay.accuracy.estimator.METHODS", (*METHODS, Halved))
    result = estimate_accuracy(reference, reference)
    assert result["half the confidence"].value == pytest.approx(result["average confidence"].value / 2)


def test_saved_probabilities_with_labels_are_a_reference(reference):
    operational = blurred_classes(COUNT, 31, noise=1.5)
    expected = estimate_accuracy(reference, operational, perturbed=[operational, reference])
    saved = [(trace.probabilities.numpy(), trace.labels) for trace in (reference, operational)]
    found = estimate_accuracy(saved[0], saved[1], perturbed=[saved[1], saved[0]])
    assert found.reference_accuracy == expected.reference_accuracy
    without = {one.method for one in expected.estimates} - {one.method for one in found.estimates}
    assert without == {EnergyGap.name}  # which probabilities do not tell
    for one in found.estimates:
        # Probabilities went through a logarithm and back in double precision; a signal is then read off a
        # fitted curve.
        assert one.value == pytest.approx(expected[one.method].value, abs=1e-6), one.method
    live = assay.Trace.from_probabilities(saved[1][0])
    assert "needs logits" in estimate_accuracy(reference, live)[EnergyGap.name].note
    again = AccuracyEstimator().fit(saved[0])
    counted = again.estimate(again.count(saved[1][0]))
    assert counted.estimates[0].value == pytest.approx(found.reference_accuracy)


def test_probabilities_taken_for_logits_no_longer_pass_for_certainty(reference):
    rows = reference.probabilities
    with pytest.warns(AssayWarning):
        taken = assay.Trace(rows, labels=reference.labels)
    estimates = estimate_accuracy(taken, rows).to_frame().set_index("method")["value"]
    # The truth is the accuracy on the reference itself; methods without a fitted curve find it to a point.
    assert estimates.drop(list(SIGNALS), errors="ignore").sub(accuracy(reference)).abs().max() < 0.01


def test_columns_in_another_order_are_refused(reference, tmp_path):
    frame = pd.DataFrame(reference.probabilities.numpy(), columns=["a", "b", "c", "d"])
    frame.assign(label=reference.labels.numpy()).to_csv(tmp_path / "reference.csv", index=False)
    frame[["b", "a", "c", "d"]].to_parquet(tmp_path / "live.parquet")
    saved = assay.data.read_probabilities(tmp_path / "reference.csv")
    with pytest.raises(InputError, match=r"in its order \['a', 'b', 'c', 'd'\], got \['b', 'a', 'c', 'd'\]"):
        estimate_accuracy(saved, assay.data.read_probabilities(tmp_path / "live.parquet"))
    live = assay.data.read_probabilities(tmp_path / "live.parquet", columns=("a", "b", "c", "d"))
    value = estimate_accuracy(saved, live).to_frame().set_index("method").loc["label shift (BBSE)", "value"]
    assert value == pytest.approx(accuracy(reference), abs=1e-6)


def test_a_reference_of_another_kind_is_refused(reference):
    with pytest.raises(InputError, match=r"labelled Trace or as \(probabilities, labels\), got ndarray"):
        estimate_accuracy(reference.probabilities.numpy(), reference)
    with pytest.raises(InputError, match="with labels"):
        estimate_accuracy((reference.probabilities, None), reference)
