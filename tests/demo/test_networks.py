"""The demo's networks learn, and come out the same from the same seed."""

import pytest
import torch

from assay.data import digits
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
