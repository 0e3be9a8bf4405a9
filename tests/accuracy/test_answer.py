"""The answer about accuracy: obstacles, class frequencies, taught views, intervals."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch

import assay
from assay.accuracy import AccuracyEstimator, estimate_accuracy
from assay.accuracy.answer import TaughtAnswer
from assay.accuracy.calibration import Calibration
from assay.accuracy.class_mix import ClassMixModel
from assay.accuracy.explanation import ExplanationModel
from assay.accuracy.headline import Headline
from assay.accuracy.input_obstacles import input_obstacle
from assay.accuracy.lesson_sets import LessonSet
from assay.accuracy.row_signals import RowSignals
from assay.accuracy.set_counter import SetCounter, _moving_positions
from assay.accuracy.set_place import SetPlace
from assay.accuracy.set_sums import set_signals
from assay.errors import InputError
from assay.faults import TABULAR
from assay.faults.lessons import lessons

FEATURES, CLASSES = 12, 4


def rows(count, seed, shares=None):
    """Four Gaussian classes in twelve dimensions, which a linear network tells apart 19 times in 20."""
    generator = np.random.default_rng(seed)
    centres = 1.1 * np.random.default_rng(99).standard_normal((CLASSES, FEATURES))
    labels = generator.choice(CLASSES, count, p=shares)
    inputs = centres[labels] + 1.3 * generator.standard_normal((count, FEATURES))
    return torch.from_numpy(inputs).float(), torch.from_numpy(labels)


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(FEATURES, 16), torch.nn.ReLU(), torch.nn.Linear(16, CLASSES))
    inputs, labels = rows(2000, 1)
    optimiser = torch.optim.Adam(module.parameters(), 0.01)
    for _ in range(150):
        loss = torch.nn.functional.cross_entropy(module(inputs), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return assay.Network(module.eval())


@pytest.fixture(scope="module")
def taught(network):
    return list(lessons(network, rows(600, 2)))


@pytest.fixture(scope="module")
def estimator(taught):
    return AccuracyEstimator().fit(taught[0].trace, taught)


def asked(estimator, network, inputs, labels):
    trace = network.observe((inputs, labels), keep_inputs=True)
    return estimator.estimate(estimator.count(trace)), float(trace.correct.double().mean())


def test_unchanged_rows_hold_with_an_interval_that_has_the_truth(estimator, network):
    result, truth = asked(estimator, network, *rows(800, 3))
    assert result.verdict == "holds"
    assert result.lower <= truth <= result.upper
    assert result.upper - result.lower < 0.1
    assert "not shown to have fallen" in result.summary()


def test_a_change_of_class_frequencies_is_told_from_the_reference(estimator, network):
    result, truth = asked(estimator, network, *rows(800, 4, shares=[0.7, 0.1, 0.1, 0.1]))
    assert "class frequencies" in result.reason
    assert result.lower <= truth <= result.upper


def test_a_fault_that_was_never_taught_is_told_within_its_interval(taught, network):
    kept = [one for one in taught if one.fault != "gaussian_noise"]
    estimator = AccuracyEstimator().fit(taught[0].trace, kept)
    inputs, labels = rows(800, 5)
    told = []
    for severity in range(1, 6):
        result, truth = asked(estimator, network, TABULAR["gaussian_noise"](inputs, severity, seed=9), labels)
        if result.verdict != "cannot tell":
            told.append(result.lower <= truth <= result.upper)
    assert len(told) >= 2
    assert sum(told) >= len(told) - 1  # a 95 % interval on five severities of one fault


def test_a_fall_is_said(estimator, network):
    inputs, labels = rows(800, 6)
    result, truth = asked(estimator, network, TABULAR["gaussian_noise"](inputs, 5, seed=9), labels)
    assert truth < result.reference_accuracy - 0.2
    assert result.verdict in ("has fallen", "cannot tell")
    assert result.place is not None


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (lambda inputs: inputs[:1].repeat(len(inputs), 1), "repeat the row before"),
        (
            lambda inputs: torch.cat([inputs[:, :6], inputs[:1, 6:].expand(len(inputs), -1)], 1),
            "never change",
        ),
        (lambda inputs: 1e3 * inputs.sign(), "at the end of their range|like nothing|look like attacks"),
        (lambda inputs: inputs[:20], "at least 50 rows"),
    ],
)
def test_inputs_that_say_nothing_are_named(estimator, network, fault, reason):
    inputs, _ = rows(400, 7)
    trace = network.observe(fault(inputs), keep_inputs=True)
    result = estimator.estimate(estimator.count(trace))
    assert result.verdict == "cannot tell"
    assert np.isnan(result.value)
    assert re.search(reason, result.reason)
    assert "Cannot tell" in result.summary()


def test_counts_of_parts_add_up_to_those_of_all(estimator, network):
    trace = network.observe(rows(500, 8)[0], keep_inputs=True)
    parts = [estimator.count(trace[:200]), estimator.count(trace[200:])]
    whole, added = estimator.count(trace).answer, (parts[0] + parts[1]).answer
    for name in ("rows", "repeats", "values", "extremes"):
        assert getattr(whole, name) == getattr(added, name)
    for name in ("scores", "gram", "predicted", "doubts", "cells", "lowest", "highest", "above", "expected"):
        np.testing.assert_allclose(getattr(whole, name), getattr(added, name), rtol=1e-9)
    result = estimator.estimate(parts[0] + parts[1])
    assert result.value == pytest.approx(
        estimator.estimate(estimator.count(trace)).value, abs=1e-9, nan_ok=True
    )


def test_a_saved_estimator_gives_the_same_answer(estimator, network, tmp_path):
    assay.save(estimator, tmp_path / "estimator.safetensors")
    loaded = assay.load(tmp_path / "estimator.safetensors")
    assert loaded.fingerprint == estimator.fingerprint
    trace = network.observe(TABULAR["offset"](rows(500, 9)[0], 2), keep_inputs=True)
    found = [one.estimate(loaded.count(trace)).headline for one in (estimator, loaded)]
    assert str(found[0]) == str(found[1])


def test_with_a_network_the_fault_library_teaches(network, tmp_path):
    reference, live = rows(300, 10), rows(300, 11)
    result = estimate_accuracy(reference, live[0], network=network, folder=tmp_path)
    assert result.place is not None
    assert {"noise", "shift", "anomaly"} < set(result.place.categories)
    assert result.lower <= float(network.observe(live).correct.double().mean()) <= result.upper


def test_with_outputs_alone_it_knows_less_and_says_so(network):
    reference = network.observe(rows(600, 12))
    inputs, labels = rows(800, 13)
    same = estimate_accuracy(reference, network.observe(inputs))
    assert same.verdict == "holds"
    noisy = network.observe((TABULAR["gaussian_noise"](inputs, 5), labels))
    fallen = estimate_accuracy(reference, noisy)
    assert "pass network=" in fallen.reason
    if fallen.verdict == "has fallen":
        assert fallen.lower == 0.0 <= float(noisy.correct.double().mean()) <= fallen.upper


def test_a_few_labels_make_the_answer_hold(network):
    reference, (inputs, labels) = rows(600, 14), rows(1000, 15)
    attacked = assay.faults.ADVERSARIAL["fgsm"](inputs, 5, network=network, labels=labels)
    trace = network.observe((attacked, labels), keep_inputs=True)
    drawn = assay.rows_to_label(trace, 100)
    result = estimate_accuracy(reference, trace, network=network, labels=labels[drawn.rows], drawn=drawn)
    assert result.labelled is not None
    assert result.lower <= float(trace.correct.double().mean()) <= result.upper
    assert "100 labelled rows" in result.reason


@pytest.mark.parametrize("only", ["labels", "drawn"])
def test_labels_and_their_rows_come_together(network, only):
    trace = network.observe(rows(100, 16))
    with pytest.raises(InputError, match="labels= and drawn= together"):
        estimate_accuracy(trace, trace, **{only: [0, 1]})


def test_a_reference_that_is_never_right_is_refused(network):
    inputs, _ = rows(200, 17)
    trace = network.observe(inputs)
    wrong = assay.Trace(trace.logits, labels=(trace.predictions + 1) % CLASSES)
    with pytest.raises(InputError, match="sometimes right"):
        estimate_accuracy(wrong, trace)


def test_a_reference_without_errors_works(network):
    inputs, _ = rows(300, 18)
    trace = network.observe(inputs)
    perfect = assay.Trace(trace.logits, labels=trace.predictions)
    result = estimate_accuracy(perfect, trace)
    assert result.value == pytest.approx(1.0, abs=0.01)


def test_a_small_reference_has_a_table_but_no_answer(network):
    trace = network.observe(rows(60, 19))
    result = estimate_accuracy(trace, network.observe(rows(200, 20)))
    assert result.verdict == "cannot tell"
    assert "at least 100 labelled reference rows" in result.reason
    assert len(result.to_frame()) > 5


def test_a_second_fit_forgets_the_first(network, taught):
    estimator = AccuracyEstimator().fit(taught[0].trace, taught)
    trace = network.observe(rows(200, 20))
    estimator.fit(network.observe(rows(60, 19)))
    result = estimator.estimate(estimator.count(trace))
    assert "at least 100 labelled reference rows" in result.reason


def test_lessons_and_other_things_do_not_mix(taught):
    with pytest.raises(InputError, match="only Lessons"):
        AccuracyEstimator().fit(taught[0].trace, [taught[1], taught[0].trace])


@pytest.mark.parametrize("category", ["noise", "adversarial"])
def test_a_lesson_of_other_rows_is_refused(taught, category):
    short = replace(taught[1], category=category, trace=taught[-1].trace[:50])
    with pytest.raises(InputError, match="expected 600 rows in every lesson"):
        TaughtAnswer().fit([taught[0], short])


def test_a_fault_under_which_the_network_fails_teaches_nothing(network):
    class Logarithm(torch.nn.Module):
        """The same network, behind a logarithm of its inputs that faults make NaN."""

        def __init__(self):
            super().__init__()
            self.module = network.module

        def forward(self, inputs):
            return self.module((inputs + 10).log().exp() - 10)

    failing = assay.Network(Logarithm())
    reference = rows(200, 23)
    failed = [one for one in lessons(failing, reference) if not one.trace.logits.isfinite().all()]
    assert failed
    estimator = AccuracyEstimator().fit(reference, network=failing)
    assert estimator.answer_.taught_
    assert np.isfinite([one.signals for one in estimator.answer_.sets_]).all()
    result, truth = asked(estimator, failing, *rows(300, 24))
    assert result.lower <= truth <= result.upper


def test_features_that_are_not_finite_are_named(estimator, network):
    trace = network.observe(rows(100, 25)[0])
    features = trace.features["penultimate"].clone()
    features[7] = torch.inf
    with pytest.raises(InputError, match="NaN or infinity in row 7"):
        estimator.answer_.count(assay.Trace(trace.logits, {"penultimate": features}))


def test_teachers_come_from_one_place(network, taught, tmp_path):
    trace = taught[0].trace
    with pytest.raises(InputError, match="network=, whose faults teach, or perturbed="):
        estimate_accuracy(rows(100, 26), trace, network=network, perturbed=taught)
    with pytest.raises(InputError, match="network= beside folder="):
        estimate_accuracy(trace, trace, folder=tmp_path)


def test_classes_that_never_occur_do_not_mislead(network):
    class Wide(torch.nn.Module):
        """The network with sixty more classes, which no row is of."""

        def __init__(self, module):
            super().__init__()
            self.module = module
            self.head = torch.nn.Linear(CLASSES, CLASSES + 60)
            torch.nn.init.zeros_(self.head.weight)
            self.head.weight.data[:CLASSES] = torch.eye(CLASSES)
            self.head.bias.data = torch.cat([torch.zeros(CLASSES), torch.full((60,), -6.0)])

        def forward(self, inputs):
            return self.head(self.module(inputs))

    wide = assay.Network(Wide(network.module))
    reference, (inputs, labels) = rows(400, 21), rows(600, 22)
    estimator = AccuracyEstimator().fit(reference, network=wide)
    result, truth = asked(estimator, wide, inputs, labels)
    assert result.verdict == "holds"
    assert result.lower <= truth <= result.upper
    noisy = TABULAR["gaussian_noise"](inputs, 4, seed=3)
    result, truth = asked(estimator, wide, noisy, labels)
    assert result.verdict == "cannot tell" or abs(result.value - truth) < 0.1


def test_row_signals_are_what_their_names_say():
    logits = torch.tensor([[2.0, 0.5, -1.0], [0.0, 0.0, 3.0]], dtype=torch.float64)
    p = np.exp(logits.numpy()) / np.exp(logits.numpy()).sum(axis=1, keepdims=True)
    ordered = np.sort(p, axis=1)
    expected = np.stack(
        [
            ordered[:, -1],
            ordered[:, -1] - ordered[:, -2],
            (p * np.log(p)).sum(axis=1),
            np.log(np.exp(logits.numpy()).sum(axis=1)),
            [1.5, 3.0],
            [2.0, 3.0],
        ],
        axis=1,
    )
    np.testing.assert_allclose(RowSignals(None).of(assay.Trace(logits)), expected, rtol=1e-12)


def test_the_nuclear_norm_of_sums_is_that_of_the_rows():
    logits = torch.randn(300, 5, generator=torch.Generator().manual_seed(0)).double()
    trace = assay.Trace(logits, labels=logits.argmax(dim=1))
    counter = SetCounter.fitted(trace)
    counter.set_doubt_edges(counter.signals_.of(trace))
    signals = set_signals(counter.sums(counter.rows(trace)))
    expected = np.linalg.norm(trace.probabilities.numpy(), "nuc") / np.sqrt(300 * 5)
    assert signals[-6] == pytest.approx(expected, rel=1e-6)


def test_class_frequencies_are_found_where_cells_show_them():
    # Cells equal classes up to a known confusion, so the frequencies solve a linear system.
    generator = np.random.default_rng(0)
    shares = np.array([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.05, 0.15, 0.8]])
    labels = np.repeat([0, 1, 2], 4000)
    cells = np.concatenate([np.repeat([0, 1, 2], (4000 * row).round().astype(int)) for row in shares])
    model = ClassMixModel.fitted(cells, labels, (cells == labels).astype(float), (3, 3))
    truth = np.array([0.6, 0.3, 0.1])
    counts = np.round(20_000 * truth @ shares)
    found = model.explained(counts, 0.95)
    np.testing.assert_allclose(found.frequencies, truth, atol=0.01)
    assert found.value == pytest.approx(truth @ np.diag(shares), abs=0.005)
    assert found.lower < truth @ np.diag(shares) < found.upper
    assert found.p_value > 0.05
    other = generator.multinomial(20_000, [0.05, 0.9, 0.05]).astype(float)
    assert model.explained(other, 0.95).p_value < 0.05  # no mixture of these classes is so sure of the second


def test_p_values_of_class_frequencies_are_small_as_often_as_they_should():
    generator = np.random.default_rng(1)
    shares = np.array([[0.7, 0.2, 0.05, 0.05], [0.1, 0.1, 0.2, 0.6]])  # two predicted classes, two bins each
    small = 0
    for _ in range(60):
        table = np.stack([generator.multinomial(400, row) for row in shares])
        labels = np.repeat([0, 1], 400)
        cells = np.concatenate([np.repeat(np.arange(4), row) for row in table])
        model = ClassMixModel.fitted(cells, labels, np.ones(800), (2, 4))
        counts = generator.multinomial(500, 0.3 * shares[0] + 0.7 * shares[1]).astype(float)
        small += model.explained(counts, 0.95).p_value <= 0.1
    assert small <= 15  # 60 draws at 10 %: more than 15 has a chance below 1e-3


def test_positions_that_hardly_ever_move_do_not_look_frozen():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(1000, 40, generator=generator)
    inputs[:, 20:] = torch.where(torch.rand(1000, 20, generator=generator) < 0.01, 1.0, 0.0)
    logits = torch.randn(1000, 3, generator=generator)
    trace = assay.Trace(logits, labels=logits.argmax(dim=1), inputs=inputs)
    counter = SetCounter.fitted(trace)
    counter.set_doubt_edges(counter.signals_.of(trace))
    assert counter.positions_.tolist() == list(range(20))
    reference, few = counter.sums(counter.rows(trace)), counter.sums(counter.rows(trace[:60]))
    assert input_obstacle(few, reference) == ""
    stuck = assay.Trace(logits[:60], inputs=torch.cat([inputs[:1, :5].expand(60, -1), inputs[:60, 5:]], 1))
    assert "25% of the input values never change" in input_obstacle(
        counter.sums(counter.rows(stuck)), reference
    )
    with pytest.raises(InputError, match="reference's shape"):
        counter.rows(assay.Trace(logits, inputs=inputs[:, :8]))
    numbers = counter.rows(assay.Trace(logits, inputs=torch.arange(1000)))
    assert numbers.inputs is None  # whole numbers are tokens


def test_positions_are_the_same_however_many_are_copied_at_once(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    flat = (torch.rand(50, 30, generator=generator) < torch.linspace(0, 1, 30)).float()
    together = _moving_positions(flat, 0)
    monkeypatch.setattr("assay.accuracy.set_counter.POSITIONS_AT_ONCE", 7)
    assert 0 < len(together) < 30
    assert torch.equal(_moving_positions(flat, 0), together)


def test_tokens_are_not_looked_at_position_by_position():
    # Shorter texts, padded or not: nothing is stuck, and no shape is wrong.
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(1, 50, (200, 20), generator=generator)
    logits = torch.randn(200, 3, generator=generator)
    trace = assay.Trace(logits, labels=logits.argmax(dim=1), inputs=tokens)
    counter = SetCounter.fitted(trace)
    counter.set_doubt_edges(counter.signals_.of(trace))
    reference = counter.sums(counter.rows(trace))
    for shorter in (tokens[:, :5], torch.nn.functional.pad(tokens[:, :5], (0, 15))):
        sums = counter.sums(counter.rows(assay.Trace(logits, inputs=shorter)))
        assert input_obstacle(sums, reference) == ""


def test_few_rows_per_class_do_not_lower_the_answer():
    # 30 classes with 15 reference rows each; nothing has changed.
    generator = np.random.default_rng(3)
    classes, bins = 30, 9
    confusion = 0.9 * np.eye(classes) + 0.1 / classes

    def drawn(rows):
        labels = generator.integers(classes, size=rows)
        predicted = np.array([generator.choice(classes, p=confusion[label]) for label in labels])
        shares = np.where((predicted == labels)[:, None], np.arange(bins, 0, -1), np.arange(1, bins + 1))
        inner = np.array([generator.choice(bins, p=row / row.sum()) for row in shares])
        return labels, predicted * bins + inner, (predicted == labels).astype(float)

    errors, held = [], []
    for _ in range(5):
        labels, cells, correct = drawn(450)
        model = ClassMixModel.fitted(cells, labels, correct, (classes, classes * bins))
        _, cells, correct = drawn(600)
        found = model.explained(np.bincount(cells, minlength=classes * bins).astype(float), 0.95)
        errors.append(found.value - correct.mean())
        held.append(found.lower <= correct.mean() <= found.upper)
    assert abs(np.mean(errors)) < 0.02  # of five: sampling alone is 0.01
    assert sum(held) >= 4


def test_attacks_explain_what_only_they_look_like():
    lessons_counts = np.array([[90.0, 10, 0, 0], [50.0, 50, 0, 0]])
    model = ExplanationModel.fitted(lessons_counts, ["a", "b"], np.array([[0.0, 10, 90, 0]]))
    assert model.of(np.array([70.0, 30, 0, 0])).attacked < 0.05
    assert model.of(np.array([35.0, 20, 45, 0])).attacked == pytest.approx(0.5, abs=0.05)
    assert model.of(np.array([10.0, 0, 0, 90])).unexplained > model.unexplained_limit


def test_intervals_are_conformal_quantiles():
    errors = np.linspace(0.1, 2.0, 20)
    calibration = Calibration(500, 0.02, errors)
    scale = np.sqrt(0.02**2 + 0.05**2 + 0.8 * 0.2 / 500)
    # ceil(21 x 0.9) = 19: the 19th of 20 errors.
    assert calibration.half_width(0.8, 0.05, 0.9, 500) == pytest.approx(errors[18] * scale)
    assert calibration.half_width(0.8, 0.05, 0.9, 100) > calibration.half_width(0.8, 0.05, 0.9, 500)


def test_the_verdict_is_about_the_reference():
    assert Headline.of(0.8, 0.7, 0.85, 0.9, "").verdict == "has fallen"
    assert Headline.of(0.8, 0.7, 0.95, 0.9, "").verdict == "holds"
    assert Headline.unknown("").verdict == "cannot tell"


def test_the_picture_puts_a_lesson_where_it_is():
    generator = np.random.default_rng(2)
    sets = [LessonSet("f", "noise", 2, 0, False, generator.standard_normal(6), 0.5) for _ in range(20)]
    place = SetPlace.of(sets, sets[3].signals)
    np.testing.assert_allclose(place.here, place.lessons[3], atol=1e-9)


def test_too_few_faults_teach_nothing(taught):
    few = [one for one in taught if one.fault in ("clean", "gaussian_noise", "offset")]
    assert not TaughtAnswer().fit(few).taught_
