"""Monitors of the output alone, against answers worked out by hand or by scipy."""

import math

import numpy as np
import pytest
import torch
from scipy import special, stats

from assay import Network, Trace
from assay.errors import InputError
from assay.monitors import GEN, ODIN, Energy, Entropy, KLMatching, MaxLogit, MaxSoftmax

# Probabilities (1/2, 1/4, 1/4), (1/3, 1/3, 1/3) and (8/10, 1/10, 1/10).
LOGITS = torch.tensor([[2.0, 1.0, 1.0], [1.0, 1.0, 1.0], [8.0, 1.0, 1.0]]).log()


def scores(monitor, logits=LOGITS, labels=None):
    trace = Trace(logits, labels=labels)
    return monitor.fit(trace).score(trace)


@pytest.mark.parametrize(
    ("monitor", "expected"),
    [
        (MaxSoftmax(), [1 / 2, 2 / 3, 2 / 10]),
        (MaxLogit(), [-math.log(2), 0.0, -math.log(8)]),
        (Entropy(), [1.5 * math.log(2), math.log(3), -0.8 * math.log(0.8) - 0.2 * math.log(0.1)]),
        (Energy(), [-math.log(4), -math.log(3), -math.log(10)]),
        (Energy(temperature=0.5), [-0.5 * math.log(6), -0.5 * math.log(3), -0.5 * math.log(66)]),
        (GEN(gamma=1.0), [1 / 4 + 3 / 16 + 3 / 16, 2 / 3, 0.16 + 0.09 + 0.09]),
        (GEN(gamma=1.0, top=1), [1 / 4, 2 / 9, 0.16]),
        (
            GEN(gamma=0.1, top=2),
            [(1 / 4) ** 0.1 + (3 / 16) ** 0.1, 2 * (2 / 9) ** 0.1, 0.16**0.1 + 0.09**0.1],
        ),
    ],
    ids=repr,
)
def test_scores_are_those_of_the_formula(monitor, expected):
    # The logits are logarithms in single precision: six digits.
    assert scores(monitor).tolist() == pytest.approx(expected, rel=1e-6)


def test_energy_and_entropy_agree_with_scipy():
    logits = torch.randn(50, 7, generator=torch.Generator().manual_seed(0)) * 5
    values = logits.double().numpy()
    assert np.allclose(scores(Energy(temperature=2.0), logits), -2 * special.logsumexp(values / 2, axis=1))
    assert np.allclose(scores(Entropy(), logits), stats.entropy(special.softmax(values, axis=1), axis=1))


def test_gen_keeps_the_order_of_very_sure_predictions():
    logits = torch.tensor([[50.0, 0.0], [60.0, 0.0], [70.0, 0.0]])
    first, second, third = scores(GEN(), logits).tolist()
    # p (1 - p) of both classes is exp(-logit) to rounding.
    assert (first, second, third) == pytest.approx([2 * math.exp(-x / 10) for x in (50, 60, 70)])


@pytest.mark.parametrize("labels", [None, torch.tensor([0, 1, 1, 0])])
def test_kl_matching_is_the_smallest_divergence_from_a_mean(labels):
    logits = torch.tensor([[2.0, 0.0], [1.0, 0.0], [0.0, 3.0], [0.0, 1.0]])
    probabilities = special.softmax(logits.double().numpy(), axis=1)
    groups = [[0, 1], [2, 3]] if labels is None else [[0, 3], [1, 2]]
    expected = np.min(
        [stats.entropy(probabilities, probabilities[rows].mean(axis=0)[None], axis=1) for rows in groups],
        axis=0,
    )
    assert np.allclose(scores(KLMatching(), logits, labels), expected, atol=1e-12)


def test_kl_matching_leaves_out_classes_without_rows_and_stays_finite():
    monitor = KLMatching().fit(Trace(torch.tensor([[900.0, 0.0, 0.0]])))
    far = monitor.score(Trace(torch.tensor([[0.0, 900.0, 0.0], [900.0, 0.0, 0.0]])))
    assert torch.isfinite(far).all()
    assert far[0] > 700
    assert far[1] == 0


@pytest.mark.parametrize("labels", [[0, 3], [-1, 0]])
def test_labels_the_network_has_no_output_for_are_refused(labels):
    with pytest.raises(InputError, match="labels from 0 to 2"):
        KLMatching().fit(Trace(LOGITS[:2], labels=torch.tensor(labels)))


@pytest.mark.parametrize(
    "build",
    [
        lambda: Energy(temperature=0.0),
        lambda: GEN(gamma=0.0),
        lambda: GEN(top=0),
        lambda: ODIN(None, temperature=-1.0),
        lambda: ODIN(None, magnitude=-0.1),
    ],
)
def test_arguments_out_of_range_are_refused(build):
    with pytest.raises(InputError, match="expected"):
        build()


def linear_network(weight):
    module = torch.nn.Linear(weight.shape[1], weight.shape[0])
    with torch.no_grad():
        module.weight.copy_(weight)
        module.bias.zero_()
    return Network(module)


def test_odin_moves_the_input_so_that_the_top_probability_rises():
    # Two classes with logits +-w'x: log of the top probability grows along sign(w) on the positive side.
    weight = torch.tensor([[1.0, -2.0], [-1.0, 2.0]])
    network = linear_network(weight)
    inputs = torch.tensor([[3.0, 1.0], [-1.0, 1.0]])
    trace = network.observe(inputs, keep_inputs=True)
    found = ODIN(network, temperature=10.0, magnitude=0.5).fit(trace).score(trace)
    moved = inputs.double() + 0.5 * torch.tensor([[1.0, -1.0], [-1.0, 1.0]])
    expected = torch.sigmoid(-2 * (moved @ weight[0].double()).abs() / 10)
    assert torch.allclose(found, expected, atol=1e-6)  # the network computes in single precision
    assert trace.inputs is inputs


def test_odin_without_a_step_is_the_softmax_at_a_temperature():
    network = linear_network(torch.eye(3))
    trace = Trace(LOGITS)
    scores = ODIN(network, temperature=4.0, magnitude=0.0).fit(trace).score(trace)
    assert torch.allclose(scores, MaxSoftmax().fit(trace).score(Trace(LOGITS / 4)), atol=1e-7)


def test_odin_needs_the_inputs_and_does_not_judge_broken_ones():
    network = linear_network(torch.eye(3))
    inputs = torch.tensor([[1.0, 0.0, 0.0], [torch.nan, 0.0, 0.0]])
    monitor = ODIN(network).fit(Trace(LOGITS))
    trace = network.observe(inputs, keep_inputs=True, allow_nonfinite=True)
    assert torch.isfinite(monitor.score(trace)).tolist() == [True, False]
    with pytest.raises(InputError, match="keep_inputs=True"):
        monitor.score(Trace(LOGITS))
