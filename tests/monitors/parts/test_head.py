"""ViM and ReAct find the last layer in the Trace, or say that it is not there; SHE by hand."""

import numpy as np
import pytest
import torch

from assay import Trace
from assay.errors import InputError
from assay.monitors import SHE, Energy, Mahalanobis, MaxSoftmax, ReAct, ViM
from assay.monitors.parts.class_rows import UNSEEN
from assay.monitors.parts.head import HeadFit
from assay.monitors.parts.row_blocks import in_blocks

WEIGHT = torch.randn(3, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
BIAS = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)


def trace_of(features):
    return Trace((features.double() @ WEIGHT.T + BIAS).float(), {"penultimate": features})


def features_of(rows, seed, dead=()):
    features = torch.randn(rows, 6, generator=torch.Generator().manual_seed(seed)).relu()
    features[:, list(dead)] = 0.0
    return features


@pytest.fixture
def training():
    return trace_of(features_of(300, seed=1))


def head_of(trace):
    fit = HeadFit("penultimate", 6, 3)
    for features, logits in in_blocks([(trace.layer("penultimate"), trace.logits)]):
        fit.add(features, logits)
    return fit.head()


def test_the_last_layer_is_recovered_to_rounding(training):
    head = head_of(training)
    # Logits in single precision, divided by the spread of the features.
    assert torch.allclose(head.weight, WEIGHT, atol=1e-6)
    assert torch.allclose(head.bias, BIAS, atol=1e-6)
    assert head.rank == 6


def test_units_that_never_fire_get_no_weight():
    trace = trace_of(features_of(300, seed=1, dead=[2]))
    head = head_of(trace)
    assert head.rank == 5
    assert torch.allclose(head.weight[:, 2], torch.zeros(3, dtype=torch.float64))
    rebuilt = trace.layer("penultimate").double() @ head.weight.T + head.bias
    assert torch.allclose(rebuilt, trace.logits.double(), atol=1e-5)


def test_a_unit_that_first_fires_late_is_found():
    # Unit 2 is silent until row 15,000 and fires in three rows of a single block.
    features = features_of(20_000, seed=1, dead=[2])
    features[15_000:15_003, 2] = torch.tensor([1.0, 2.0, 3.0])
    head = head_of(trace_of(features))
    assert head.rank == 6
    # Three rows in single precision, after elimination of five other weights.
    assert torch.allclose(head.weight, WEIGHT, atol=1e-5)
    assert head.rows < 8_000  # the others taught nothing and were passed over


@pytest.mark.parametrize("cls", [ViM, ReAct])
def test_a_layer_that_does_not_feed_the_logits_is_refused(cls, training):
    other = Trace(training.logits.square(), training.features)
    with pytest.raises(InputError, match="determine the logits linearly"):
        cls().fit(other)


@pytest.mark.parametrize("cls", [ViM, ReAct])
def test_too_few_rows_to_recover_the_layer_are_refused(cls, training):
    with pytest.raises(InputError, match="more rows than the 6 features"):
        cls().fit(training[:7])


def test_react_is_the_energy_of_clipped_features(training):
    monitor = ReAct(percentile=80).fit(training)
    ceiling = np.percentile(training.layer("penultimate").numpy(), 80)
    assert monitor.ceiling_ == pytest.approx(ceiling)
    unseen = trace_of(features_of(40, seed=2) * 3)
    clipped = trace_of(unseen.layer("penultimate").clamp(max=float(ceiling)))
    assert torch.allclose(monitor.score(unseen), Energy().fit(clipped).score(clipped), atol=1e-5)


def test_react_that_clips_nothing_is_the_wrapped_monitor(training):
    monitor = ReAct(MaxSoftmax(), percentile=100).fit(training)
    expected = MaxSoftmax().fit(training).score(training)
    assert torch.allclose(monitor.score(training), expected, atol=1e-6)
    assert not hasattr(monitor.monitor, "classes_")  # the one handed in is left unfitted


def test_react_does_not_hide_an_infinite_feature(training):
    features = features_of(2, seed=3)
    features[0, 0] = torch.inf
    scores = ReAct().fit(training).score(Trace(torch.zeros(2, 3), {"penultimate": features}))
    assert torch.isnan(scores).tolist() == [True, False]


@pytest.mark.parametrize(
    "build", [lambda: ReAct(Mahalanobis()), lambda: ReAct(percentile=0), lambda: ViM(dimensions=-1)]
)
def test_arguments_that_make_no_sense_are_refused(build):
    with pytest.raises(InputError, match="expected"):
        build()


def test_vim_is_the_log_odds_of_the_virtual_logit(training):
    monitor = ViM(dimensions=4).fit(training)
    unseen = trace_of(features_of(40, seed=2) * 2)
    origin = -np.linalg.pinv(WEIGHT.numpy()) @ BIAS.numpy()
    rows = training.layer("penultimate").double().numpy() - origin
    _, directions = np.linalg.eigh(rows.T @ rows)
    residual = directions[:, :2]
    alpha = training.logits.amax(dim=1).mean().item() / np.linalg.norm(rows @ residual, axis=1).mean()
    virtual = alpha * np.linalg.norm(
        (unseen.layer("penultimate").double().numpy() - origin) @ residual, axis=1
    )
    logits = np.concatenate([unseen.logits.double().numpy(), virtual[:, None]], axis=1)
    probability = (np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True))[:, -1]
    # The paper's probability, from a head recovered in single precision.
    assert np.allclose(torch.sigmoid(monitor.score(unseen)), probability, atol=1e-4)


def test_vim_on_features_that_never_leave_a_small_space_says_what_it_did():
    trace = trace_of(features_of(300, seed=1, dead=[1, 2, 3, 5]))
    monitor = ViM(dimensions=4).fit(trace)
    assert "span" in monitor.remedy_
    assert torch.isfinite(monitor.score(trace)).all()
    with pytest.raises(InputError, match="fewer dimensions than the 6 features"):
        ViM(dimensions=6).fit(trace)


def test_vim_takes_the_papers_dimensions_where_there_are_enough_features():
    from assay.monitors.vim import _default_dimensions

    assert [_default_dimensions(size) for size in (64, 512, 768, 2048)] == [32, 256, 512, 1000]


def test_she_is_the_product_with_the_mean_of_what_the_class_got_right():
    features = torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 2.0], [9.0, 9.0]])
    logits = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 0.0]])
    trace = Trace(logits, {"penultimate": features}, torch.tensor([0, 0, 1, 0]))
    monitor = SHE().fit(trace)
    assert monitor.patterns_.tolist() == [[2.0, 0.0], [0.0, 2.0], [0.0, 0.0]]
    assert monitor.score(trace).tolist() == [-2.0, -6.0, -4.0, -18.0]
    assert "no row of class 2 right" in monitor.remedy_
    never = Trace(torch.tensor([[0.0, 0.0, 1.0]]), {"penultimate": features[:1]})
    assert monitor.score(never).tolist() == [UNSEEN]


def test_she_without_a_single_right_row_is_refused():
    trace = Trace(torch.tensor([[1.0, 0.0]]), {"penultimate": torch.ones(1, 2)}, torch.tensor([1]))
    with pytest.raises(InputError, match="correctly classified"):
        SHE().fit(trace)
