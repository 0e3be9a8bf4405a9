"""A small classifier of bright spots, with guards that work, and one that knows nothing."""

import pytest
import torch
from torch import nn

import assay
from assay.monitors import Monitor


class Spots(nn.Module):
    """Says which quarter of an 8x8 image is brightest; exact, without training."""

    def __init__(self):
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(2)
        self.head = nn.Linear(4, 4, bias=False)
        with torch.no_grad():
            self.head.weight.copy_(20 * torch.eye(4))

    def forward(self, x):
        return self.head(self.pool(x).flatten(1))


class CoinToss(Monitor):
    """A score that has nothing to do with the input: chance itself."""

    def __init__(self, seed: int = 0):
        self.seed = seed

    def _fit(self, traces):
        for _ in traces:
            pass

    def _score(self, trace):
        # From the logits' own digits, so that one input at a time and batches agree.
        return (trace.logits.double().sum(dim=1) * 12_345.678 + self.seed).frac().abs()


def spots(count, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 4, (count,), generator=generator)
    images = 0.2 * torch.rand(count, 1, 8, 8, generator=generator)
    for quarter in range(4):
        top, left = divmod(quarter, 2)
        images[labels == quarter, :, 4 * top : 4 * top + 4, 4 * left : 4 * left + 4] += 0.5
    return images, labels


@pytest.fixture(scope="session")
def network():
    return assay.Network(Spots())


@pytest.fixture(scope="session")
def data():
    return spots(200, seed=1)


@pytest.fixture(scope="session")
def guards(network):
    train, validation = (network.observe(spots(400, seed), keep_inputs=True) for seed in (2, 3))
    monitors = {
        "maha": assay.monitors.Mahalanobis(),
        "msp": assay.monitors.MaxSoftmax(),
        "range": assay.monitors.InputRange(low=0.0, high=0.75),
        "coin": CoinToss(),
    }
    return {
        name: assay.Guard(network, monitor.fit(train)).calibrate(validation)
        for name, monitor in monitors.items()
    }
