"""The demo's networks learn, and come out the same from the same seed."""

import math

import pytest
import torch

from assay.data import digits
from assay.demo.adam import Adam
from assay.demo.networks import ARCHITECTURES, trained, without


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_networks_learn_and_are_reproducible(name):
    train, test = digits()
    state = torch.random.get_rng_state()
    module = trained(ARCHITECTURES[name], train, seed=1, epochs=15)
    again = trained(ARCHITECTURES[name], train, seed=1, epochs=15)
    assert torch.equal(torch.random.get_rng_state(), state)
    for one, other in zip(module.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)
    # Guessing is 0.1; even the narrow network is far beyond after 15 of its 60 epochs.
    assert (module(test.inputs).argmax(1) == test.labels).double().mean() > 0.7


def test_a_class_can_be_left_out():
    train, _ = digits()
    inputs, labels = without(train, [9, 3])
    assert set(labels.tolist()) == {0, 1, 2, 4, 5, 6, 7, 8}
    assert len(inputs) == int((~torch.isin(train.labels, torch.tensor([3, 9]))).sum())


def test_adam_takes_the_steps_of_the_paper():
    """Algorithm 1 written out in plain numbers, on a cosine from the rate to nothing."""
    gradients, rate, steps = [0.5, -2.0, 0.1, 3.0], 0.1, 4
    optimiser = Adam([torch.tensor([1.0], dtype=torch.float64)], rate, steps)
    place, mean, square = 1.0, 0.0, 0.0
    for number, gradient in enumerate(gradients, start=1):
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        size = rate * (1 + math.cos(math.pi * (number - 1) / steps)) / 2
        place -= size * (mean / (1 - 0.9**number)) / (math.sqrt(square / (1 - 0.999**number)) + 1e-8)
        optimiser.step([torch.tensor([gradient], dtype=torch.float64)])
        assert float(optimiser.parameters[0]) == pytest.approx(place, rel=1e-13)
