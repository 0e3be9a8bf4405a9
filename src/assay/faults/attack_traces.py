"""What a network does under attacks of all lengths that matter for it."""

from collections.abc import Callable, Iterator
from functools import cache

import torch
from torch import Tensor

from assay.faults.adversarial import attacked, fgsm_direction, pgd
from assay.faults.attacks import ROW_SCALE, standardised
from assay.network import Network, perturbable
from assay.trace import Inputs, Trace

LENGTHS = tuple(2.0**power / 255 for power in range(7))
"""Of FGSM, in l-inf: 1/255 to 64/255 for images; for tables times ROW_SCALE, in standard deviations."""
STEPS = 5
NEAR = (0.5, 1.0, 2.0)
"""Lengths of PGD, in lengths of FGSM that halve what its shortest step left, since networks differ."""

Observe = Callable[[str, Callable[[], Inputs]], Trace]
"""From the name of an attack and a function that makes the attacked inputs to the Trace of these."""


def attack_traces(
    network: Network, inputs: Tensor, labels: Tensor, observe: Observe, seed: int = 0
) -> Iterator[tuple[str, int, Trace]]:
    """(attack, step, Trace): FGSM at every length, then PGD near the one that halves the accuracy.

    FGSM takes one gradient for all lengths. A network whose accuracy no length halves is attacked near the
    longest.
    """
    table = inputs.ndim == 2
    scale = ROW_SCALE if table else 1.0
    low, high = (None, None) if table else (0.0, 1.0)
    target, spread = standardised(network, inputs) if table else (network, torch.ones(()))
    origin = inputs / spread
    direction = cache(lambda: fgsm_direction(target, origin, labels))

    def fgsm_moved(length: float) -> Inputs:
        moved = attacked(origin, direction(), scale * length, low=low, high=high)
        return perturbable(moved) * spread

    def pgd_moved(length: float) -> Inputs:
        moved = pgd(target, origin, labels, scale * length, steps=STEPS, low=low, high=high, seed=seed)
        return perturbable(moved) * spread

    found = []
    for step, length in enumerate(LENGTHS, 1):
        found.append(observe(f"fgsm-{step}", lambda: fgsm_moved(length)))  # noqa: B023
        yield "fgsm", step, found[-1]
    accuracies = [float(trace.correct.double().mean()) for trace in found]
    halved = [length for length, left in zip(LENGTHS, accuracies, strict=True) if left <= accuracies[0] / 2]
    for step, near in enumerate(NEAR, 1):
        length = near * min(halved, default=LENGTHS[-1])
        yield "pgd", step, observe(f"pgd-{step}", lambda: pgd_moved(length))  # noqa: B023
