"""Attacks move as far as they say, in the direction they say, and no further."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from torch import nn
from torch.nn.functional import cross_entropy

import assay
from assay.errors import GradientError, InputError
from assay.faults import attacked, fgsm, fgsm_direction, pgd, random_sign
from assay.faults.norms import inside, norms, projected, steepest, support

NORMS = ["linf", "l2", "l1"]


def small_network(scale=1.0, bend=1.0):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(48, 16), nn.Tanh(), nn.Linear(16, 4))
    with torch.no_grad():
        module[3].weight *= scale
        module[1].weight *= bend
    return assay.Network(module, batch_size=7)


@pytest.fixture
def network():
    return small_network()


@pytest.fixture
def inputs():
    return torch.rand(20, 3, 4, 4, generator=torch.Generator().manual_seed(1)) * 0.8 + 0.1


@pytest.fixture
def labels(network, inputs):
    return network.observe(inputs).predictions


def loss(network, inputs, labels):
    return cross_entropy(network(inputs).double(), labels, reduction="none").detach()


@pytest.mark.parametrize("norm", NORMS)
def test_directions_have_norm_one_and_follow_the_gradient_of_cross_entropy(network, inputs, labels, norm):
    moving = inputs.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(
        cross_entropy(network(moving).double(), labels, reduction="sum"), moving
    )
    direction = fgsm_direction(network, inputs, labels, norm)
    # Single precision: a unit vector of 48 entries is off by a few times 1e-7.
    assert torch.allclose(norms(direction, norm), torch.ones(20, dtype=torch.float64), atol=1e-6)
    assert torch.allclose(direction, steepest(gradient, norm), atol=1e-5)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_no_direction_of_norm_one_rises_faster_than_the_steepest(norm):
    generator = torch.Generator().manual_seed(3)
    gradient = torch.randn(1, 6, generator=generator)
    rise = (gradient * steepest(gradient, norm)).sum()
    others = torch.randn(5_000, 6, generator=generator)
    others /= norms(others, norm)[:, None]
    assert (others @ gradient[0] <= rise + 1e-6).all()


def test_l1_moves_the_coordinates_with_the_largest_gradient_evenly():
    gradient = torch.zeros(1, 400)
    gradient[0, [3, 30, 300, 399]] = torch.tensor([5.0, -6.0, 7.0, -8.0])
    gradient[0, 7] = 0.1
    direction = steepest(gradient, "l1")
    assert support(400) == 4
    assert direction[0, [3, 30, 300, 399]].tolist() == [0.25, -0.25, 0.25, -0.25]
    assert direction.count_nonzero() == 4


@pytest.mark.parametrize("norm", NORMS)
def test_a_gradient_of_zero_gives_no_direction_and_a_tiny_one_a_whole_one(norm):
    gradient = torch.zeros(2, 5)
    gradient[1] = torch.tensor([1e-30, -2e-30, 0.0, 1e-31, 3e-30])
    lengths = norms(steepest(gradient, norm), norm)
    assert lengths[0] == 0
    assert lengths[1] == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("norm", NORMS)
def test_attacks_reach_networks_so_sure_that_cross_entropy_has_no_gradient(inputs, norm):
    network = small_network(scale=1e4)
    labels = network.observe(inputs).predictions
    moving = inputs.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(cross_entropy(network(moving), labels, reduction="sum"), moving)
    assert (gradient.flatten(1).abs().amax(dim=1) == 0).any()
    direction = fgsm_direction(network, inputs, labels, norm)
    assert torch.allclose(norms(direction, norm), torch.ones(20, dtype=torch.float64), atol=1e-6)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("attack", ["fgsm", "pgd", "random_sign"])
def test_attacks_stay_in_ball_and_box_and_leave_the_inputs_alone(network, inputs, labels, norm, attack):
    before = inputs.clone()
    for epsilon in (0.0, 0.05, 0.5, 3.0):
        if attack == "random_sign":
            moved = random_sign(inputs, epsilon, norm, seed=1)
        else:
            function = {"fgsm": fgsm, "pgd": pgd}[attack]
            moved = function(network, inputs, labels, epsilon, norm)
        assert norms(moved - inputs, norm).max() <= epsilon * (1 + 1e-5) + 1e-6
        assert moved.min() >= 0
        assert moved.max() <= 1
    assert torch.equal(inputs, before)


@pytest.mark.parametrize("norm", NORMS)
def test_one_direction_serves_every_epsilon_with_and_without_bounds(network, inputs, labels, norm):
    direction = fgsm_direction(network, inputs, labels, norm)
    for epsilon in (0.01, 0.1, 1.0):
        expected = fgsm(network, inputs, labels, epsilon, norm)
        assert torch.equal(attacked(inputs, direction, epsilon), expected)
        free = attacked(inputs, direction, epsilon, low=None, high=None)
        # x + e d - x in single precision, then summed over 48 entries.
        assert norms(free - inputs, norm).min() == pytest.approx(epsilon, rel=2e-4)


@pytest.mark.parametrize("norm", NORMS)
def test_fgsm_beats_random_signs_and_pgd_beats_fgsm_where_the_network_is_curved(inputs, norm):
    epsilon = {"linf": 0.2, "l2": 1.5, "l1": 5.0}[norm]
    network = small_network(bend=8.0)
    labels = network.observe(inputs).predictions
    noisy = loss(network, random_sign(inputs, epsilon, norm, seed=2), labels).mean()
    single = loss(network, fgsm(network, inputs, labels, epsilon, norm), labels).mean()
    many = loss(network, pgd(network, inputs, labels, epsilon, norm, steps=20), labels).mean()
    assert noisy < single < many


def test_without_labels_the_predictions_are_attacked(network, inputs, labels):
    assert torch.equal(fgsm_direction(network, inputs), fgsm_direction(network, inputs, labels))
    assert torch.equal(pgd(network, inputs, None, 0.1), pgd(network, inputs, labels, 0.1))


def test_seeds_decide_and_the_global_random_state_is_not_touched(network, inputs, labels):
    torch.manual_seed(5)
    state = torch.random.get_rng_state()
    assert torch.equal(random_sign(inputs, 0.1, seed=3), random_sign(inputs, 0.1, seed=3))
    assert not torch.equal(random_sign(inputs, 0.1, seed=3), random_sign(inputs, 0.1, seed=4))
    assert torch.equal(pgd(network, inputs, labels, 0.1, seed=3), pgd(network, inputs, labels, 0.1, seed=3))
    assert torch.equal(torch.random.get_rng_state(), state)


class Sentences(nn.Module):
    """Takes embeddings and a mask by name, as text models do."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.head = nn.Linear(6, 2)

    def forward(self, inputs_embeds, attention_mask):
        weights = attention_mask[:, :, None]
        return self.head(torch.tanh((inputs_embeds * weights).sum(dim=1)))


def test_dicts_are_attacked_in_their_floating_tensor_only_where_the_network_looks():
    generator = torch.Generator().manual_seed(0)
    inputs = {
        "inputs_embeds": torch.randn(3, 4, 6, generator=generator),
        "attention_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]]),
    }
    network = assay.Network(Sentences())
    for attack in (fgsm, pgd):
        moved = attack(network, inputs, None, 0.1, "l2", low=None, high=None)
        assert torch.equal(moved["attention_mask"], inputs["attention_mask"])
        assert norms(moved["inputs_embeds"] - inputs["inputs_embeds"], "l2").max() <= 0.1 + 1e-6
    direction = fgsm_direction(network, inputs, norm="l2")
    assert (direction[1, 2:] == 0).all()


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    norm=st.sampled_from(NORMS),
    epsilon=st.floats(0.05, 2.0),
    size=st.integers(1, 5),
)
def test_projection_gives_the_nearest_point_of_the_ball(seed, norm, epsilon, size):
    delta = torch.randn(1, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    nearest = projected(delta, epsilon, norm)
    assert norms(nearest, norm) <= epsilon + 1e-9
    # Brute force by another method: SLSQP on the positive parts (x = p - q keeps l1 and l-inf smooth).
    goal = delta[0].numpy()

    def point(z):
        return z[:size] - z[size:]

    ball = {
        "linf": lambda z: epsilon - z,
        "l2": lambda z: epsilon**2 - (point(z) ** 2).sum(),
        "l1": lambda z: epsilon - z.sum(),
    }[norm]
    found = minimize(
        lambda z: ((point(z) - goal) ** 2).sum(),
        np.full(2 * size, epsilon / (4 * size)),
        bounds=[(0, None)] * (2 * size),
        constraints={"type": "ineq", "fun": ball},
        method="SLSQP",
        options={"maxiter": 300, "ftol": 1e-12},
    )
    best = math.sqrt(((nearest[0].numpy() - goal) ** 2).sum())
    # SLSQP stops about 1e-6 from its optimum; ours must be at least as near as that.
    assert best <= math.sqrt(max(found.fun, 0)) + 1e-4


@pytest.mark.parametrize("norm", NORMS)
def test_random_starts_fill_the_ball_evenly(norm):
    size, count = 3, 20_000
    draws = inside(torch.zeros(count, size), 2.0, norm, torch.Generator().manual_seed(0))
    lengths = norms(draws, norm)
    assert lengths.max() <= 2.0 + 1e-6
    # In a d-dimensional ball P(norm < r epsilon) = r^d; the standard error here is below 0.0036.
    for share in (0.5, 0.8):
        assert (lengths < 2.0 * share).double().mean() == pytest.approx(share**size, abs=0.015)


def test_bad_input_gets_one_clear_sentence(network, inputs, labels):
    with pytest.raises(InputError, match="expected norm to be one of"):
        fgsm_direction(network, inputs, labels, "l3")
    with pytest.raises(InputError, match="expected epsilon of at least 0, got -1"):
        fgsm(network, inputs, labels, -1)
    with pytest.raises(InputError, match="expected labels from 0 to 3"):
        fgsm_direction(network, inputs, labels + 4)
    with pytest.raises(InputError, match="expected a direction of shape"):
        attacked(inputs, torch.zeros(20, 3), 0.1)
    with pytest.raises(InputError, match="at least one step"):
        pgd(network, inputs, labels, 0.1, steps=0)


class BlackBox(nn.Module):
    differentiable = False

    def forward(self, x):
        return x.flatten(1)[:, :2]


def test_a_network_without_gradients_says_so(inputs):
    with pytest.raises(GradientError, match="black box"):
        fgsm_direction(assay.Network(BlackBox(), layers=()), inputs, torch.zeros(20, dtype=torch.long))
