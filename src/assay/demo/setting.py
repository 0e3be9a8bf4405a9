"""Shared by every chapter of the demo: digits with one class unknown, and three trained networks."""

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.data import digits
from assay.demo.networks import ARCHITECTURES, trained, without
from assay.engine import progress
from assay.network import Network

UNKNOWN = 9
"""The digit that no network of the demo ever sees in training."""

Pair = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Setting:
    """The networks know digits 0 to 8; `unknown` is every 9.

    `validation` is not used in training, but for thresholds and references; `test` is used for neither.
    """

    networks: dict[str, Network]
    train: Pair
    validation: Pair
    test: Pair
    unknown: Tensor
    seed: int

    @property
    def favourite(self) -> Network:
        """The network for chapters that need only one."""
        return next(iter(self.networks.values()))


def prepared(seed: int = 0) -> Setting:
    """The data split by the seed and the networks trained from it."""
    seen, test = digits(seed=seed)
    known, known_test = without(seen, [UNKNOWN]), without(test, [UNKNOWN])
    order = torch.randperm(len(known[1]), generator=torch.Generator().manual_seed(seed))
    held = order[: len(order) // 4]
    kept = order[len(order) // 4 :]
    train = known[0][kept], known[1][kept]
    networks = {
        name: Network(trained(architecture, train, seed=seed))
        for name, architecture in progress(ARCHITECTURES.items(), "training", len(ARCHITECTURES))
    }
    unknown = torch.cat([inputs[labels == UNKNOWN] for inputs, labels in (seen, test)])
    return Setting(networks, train, (known[0][held], known[1][held]), known_test, unknown, seed)
