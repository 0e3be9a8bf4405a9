"""A function of arrays is a network as far as one can be without layers, weights and gradients."""

import numpy as np
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from torch import nn

import assay
from assay import Guard, Network
from assay.errors import AssayWarning, GradientError, InputError, StorageError
from assay.monitors import MaxSoftmax


@pytest.fixture(scope="module")
def data():
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(120, 4))
    return rows, (rows[:, 0] > 0).astype(np.int64) + (rows[:, 1] > 0)


@pytest.fixture(scope="module")
def forest(data):
    return RandomForestClassifier(5, random_state=0).fit(*data)


def guard_of(network, rows):
    return Guard(network, MaxSoftmax().fit(network.observe(rows))).calibrate(network.observe(rows), 0.1)


def test_probabilities_come_back_whole_and_zeros_are_clipped(forest, data):
    trace = Network.from_function(forest.predict_proba).observe(data)
    expected = torch.from_numpy(forest.predict_proba(data[0]))
    # Single precision: 1e-6 relative, and a zero becomes the smallest normal number, 1e-38.
    torch.testing.assert_close(trace.probabilities.double(), expected, rtol=1e-6, atol=1e-37)
    assert torch.isfinite(trace.logits).all()
    assert (expected == 0).any()
    assert trace.features == {}
    assert torch.equal(trace.predictions, expected.argmax(dim=1))


def test_logits_may_come_as_arrays_or_tensors(data):
    weight = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)).double()
    expected = torch.from_numpy(data[0]) @ weight.T
    for function in (lambda rows: rows @ weight.numpy().T, lambda rows: torch.from_numpy(rows) @ weight.T):
        trace = Network.from_function(function, outputs="logits").observe(data)
        torch.testing.assert_close(trace.logits, expected.float())


def test_rows_that_are_not_finite_are_alarms_and_never_reach_the_function(data):
    model = LogisticRegression().fit(*data)  # raises on NaN
    guard = guard_of(Network.from_function(model.predict_proba), data[0])
    rows = torch.from_numpy(data[0][:4].copy())
    rows[1, 2], rows[3, 0] = torch.nan, torch.inf
    verdict = guard(rows)
    assert verdict.alarm[[1, 3]].all()
    alone = guard(rows[[0, 2]])
    assert torch.equal(verdict.scores[[0, 2]], alone.scores)


def test_without_an_identity_it_is_not_kept_and_with_one_only_for_itself(forest, data, tmp_path):
    path = tmp_path / "guard.safetensors"
    with pytest.raises(InputError, match=r'got .*predict_proba, identity=None.*identity="forest-2026-11"'):
        assay.save(guard_of(Network.from_function(forest.predict_proba), data[0]), path)
    assert not path.exists()
    named = Network.from_function(forest.predict_proba, identity="forest-2026-11")
    guard = guard_of(named, data[0])
    assay.save(guard, path)
    assert assay.load(path, network=named).fingerprint == guard.fingerprint
    other = LogisticRegression().fit(*data).predict_proba
    with pytest.raises(StorageError, match="another network"):
        assay.load(path, network=Network.from_function(other, identity="regression-2026-11"))
    with pytest.raises(StorageError, match="expected a network with weights"):
        assay.load(path, network=Network.from_function(other))
    scores = Network.from_function(forest.predict_proba, identity="forest-2026-11", outputs="logits")
    assert scores.fingerprint != named.fingerprint


class Wrapped(nn.Module):
    """What people wrote before there was from_function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, rows):
        return torch.from_numpy(self.function(rows.numpy())).float()


def test_modules_without_weights_need_a_name_as_well(forest):
    with pytest.raises(InputError, match=r"expected a network with weights.*got Network\(Wrapped"):
        Network(Wrapped(forest.predict_proba), layers=()).fingerprint  # noqa: B018
    one, other = (Network(Wrapped(forest.predict_proba), (), identity=name) for name in ("one", "other"))
    assert one.fingerprint != other.fingerprint
    named = Network(nn.Linear(2, 2), identity="one")
    assert named.fingerprint != Network(named.module).fingerprint
    with pytest.raises(InputError, match="got an empty one"):
        Network(Wrapped(forest.predict_proba), (), identity=" ")


def test_what_a_function_cannot_do_is_said(forest, data, tmp_path):
    network = Network.from_function(forest.predict_proba, identity="forest")
    with pytest.raises(GradientError, match="black box"):
        network.gradient(torch.from_numpy(data[0]), lambda trace: trace.logits[:, 0])
    guard = guard_of(network, data[0])
    with pytest.raises(InputError, match="a Python function; export the model with its own library"):
        guard.export(tmp_path / "guard.onnx", example=torch.from_numpy(data[0][:1]))
    with pytest.raises(InputError, match="pass predict_proba itself"):
        Network.from_function(forest)
    with pytest.raises(InputError, match=r"torch module to assay\.Network"):
        Network.from_function(nn.Linear(2, 2))
    with pytest.raises(InputError, match="outputs to be one of"):
        Network.from_function(forest.predict_proba, outputs="scores")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda rows: rows[:, :2], 'add up to 1.*outputs="logits"'),
        (lambda rows: np.full((len(rows), 2), np.nan), "add up to 1"),
        (lambda rows: np.full((len(rows), 2, 2), 0.5), r"got \(5, 2, 2\)"),
        (lambda rows: np.full(len(rows) + 1, 0.5), r"got \(6,\)"),
        (lambda rows: np.full((len(rows), 1), 1.5), "add up to 1"),
        (lambda rows: [rows[:, :2], rows[:, :2]], r"got 0 \(5, 2\), 1 \(5, 2\); choose one with output=0"),
        (lambda rows: "yes", "got str"),
    ],
)
def test_answers_that_are_no_probabilities_are_said_to_be_so(function, message):
    with pytest.raises(InputError, match=message):
        Network.from_function(function).observe(torch.rand(5, 3))


def test_one_column_of_probabilities_is_two_classes(data):
    model = LogisticRegression().fit(data[0], data[1] > 0)
    both = torch.from_numpy(model.predict_proba(data[0]))
    for columns in (1, slice(1, 2)):
        network = Network.from_function(lambda rows, part=columns: model.predict_proba(rows)[:, part])
        trace = network.observe((data[0], data[1] > 0))
        torch.testing.assert_close(trace.probabilities, both, rtol=1e-5, atol=1e-6)


def test_of_several_tables_one_is_chosen(data):
    several = np.stack([data[1] > 0, data[1] > 1], axis=1)
    forest = RandomForestClassifier(5, random_state=0).fit(data[0], several)
    trace = Network.from_function(forest.predict_proba, output=1).observe((data[0], several[:, 1]))
    expected = torch.from_numpy(forest.predict_proba(data[0])[1])
    torch.testing.assert_close(trace.probabilities, expected, rtol=1e-6, atol=1e-37)


def test_what_a_function_returns_may_be_left_to_assay(data):
    model = LogisticRegression().fit(*data)
    scores = Network.from_function(model.decision_function, outputs=None)
    torch.testing.assert_close(
        scores.observe(data).logits, torch.from_numpy(model.decision_function(data[0])).float()
    )
    with pytest.warns(AssayWarning, match=r"LogisticRegression\.predict_proba returns probabilities"):
        trace = Network.from_function(model.predict_proba, outputs=None).observe(data)
    torch.testing.assert_close(trace.probabilities, scores.observe(data).probabilities, rtol=1e-5, atol=1e-6)


def on_digits(fit):
    """A fitted classifier, and rows of digits with their labels that it has not seen."""
    train, test = assay.data.digits()
    rows = train.inputs[:300].flatten(1).numpy()
    return fit(rows, train.labels[:300].numpy()), (test.inputs[:120].flatten(1).numpy(), test.labels[:120])


def same_as_the_package(network, probabilities, data):
    """Every number of the Trace, and a guard on it."""
    trace = network.observe(data)
    # Single precision of logarithms: 1e-5 relative, and 1e-7 where a probability is next to nothing.
    torch.testing.assert_close(
        trace.probabilities, torch.from_numpy(probabilities).double(), rtol=1e-5, atol=1e-7
    )
    guard = Guard(network, MaxSoftmax().fit(trace[:60])).calibrate(trace[60:], 0.1)
    assert len(guard(data[0]).alarm) == 120


def test_xgboost():
    xgboost = pytest.importorskip("xgboost")
    model, data = on_digits(xgboost.XGBClassifier(n_estimators=3, max_depth=3, n_jobs=1).fit)
    network = Network.from_function(model.predict_proba, identity="xgboost")
    same_as_the_package(network, model.predict_proba(data[0]), data)
    even, data = on_digits(
        lambda rows, labels: xgboost.train(
            {"objective": "binary:logistic", "nthread": 1}, xgboost.DMatrix(rows, labels % 2), 3
        )
    )
    column = even.predict(xgboost.DMatrix(data[0]))
    single = Network.from_function(lambda rows: even.predict(xgboost.DMatrix(rows)), identity="even")
    same_as_the_package(single, np.stack([1 - column, column], axis=1), (data[0], data[1] % 2))


def test_lightgbm():
    lightgbm = pytest.importorskip("lightgbm")
    settings = {"n_estimators": 3, "n_jobs": 1, "verbose": -1}
    model, data = on_digits(lightgbm.LGBMClassifier(**settings).fit)
    # The booster's own predict: predict_proba warns that arrays have no names of features.
    network = Network.from_function(model.booster_.predict, identity="lightgbm")
    same_as_the_package(network, model.booster_.predict(data[0]), data)
    even, data = on_digits(
        lambda rows, labels: lightgbm.LGBMClassifier(**settings).fit(rows, labels % 2).booster_
    )
    column = even.predict(data[0])
    single = Network.from_function(even.predict, identity="even")
    same_as_the_package(single, np.stack([1 - column, column], axis=1), (data[0], data[1] % 2))
