"""Versions of one network that differ a little, where agreement on the line has no other networks."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from assay.errors import InputError
from assay.network import Network, perturbable, replaced
from assay.network.taps import has_dropout
from assay.trace import Inputs, Trace

FEWEST_VERSIONS = 2
"""With the network itself that makes three, the fewest that have a line."""
NOISE_STEP = 0.05
"""Noise of the k-th version: k times this, in standard deviations of the reference inputs."""

Augmentation: TypeAlias = Callable[[Any], Any]


def companions(
    network: Network,
    reference: Any,
    operational: Any,
    *,
    augmentation: Augmentation | Sequence[Augmentation] | None = None,
    versions: int = 4,
    seed: int = 0,
) -> tuple[list[Trace], list[Trace]]:
    """What `versions` versions of the network say about both sets of inputs: pass the result as `other=`.

    A version is the network under one dropout mask, the same for both sets, if the module has dropout; or
    the network behind an augmentation of its inputs: your function (or a list, one for each version), and
    without one, noise of 5 % of the spread of the reference inputs for the first version, 10 % for the
    second, and so on. Costs a forward pass over both sets for each version.

    Baek et al. (2022) compare networks that were trained apart; versions of one network err alike more often.
    """
    if augmentation is None and has_dropout(network.module):
        _check_count(versions)
        return _thinned(network, reference, versions, seed), _thinned(network, operational, versions, seed)
    changes = _changes(network, reference, augmentation, versions, seed)
    found = [[network.observe(change(inputs)) for change in changes] for inputs in (reference, operational)]
    return found[0], found[1]


def _thinned(network: Network, inputs: Any, versions: int, seed: int) -> list[Trace]:
    return [Trace(logits) for logits in network.dropout_logits(network.encode(inputs), versions, seed)]


def _changes(
    network: Network,
    reference: Any,
    augmentation: Augmentation | Sequence[Augmentation] | None,
    versions: int,
    seed: int,
) -> list[Augmentation]:
    if augmentation is None:
        _check_count(versions)
        spread = float(perturbable(network.encode(reference)).double().std())
        return [_noise(network, NOISE_STEP * (k + 1) * spread, seed + k) for k in range(versions)]
    chosen = [augmentation] * versions if callable(augmentation) else list(augmentation)
    _check_count(len(chosen))
    return chosen


def _noise(network: Network, deviation: float, seed: int) -> Augmentation:
    def noisy(inputs: Any) -> Inputs:
        encoded = network.encode(inputs)
        values = perturbable(encoded)
        return replaced(encoded, values + deviation * _standard_normal(values, seed))

    return noisy


def _standard_normal(like: Tensor, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(like.shape, generator=generator).to(like)


def _check_count(versions: int) -> None:
    if versions < FEWEST_VERSIONS:
        raise InputError(
            f"expected at least {FEWEST_VERSIONS} versions of the network, got {versions}; make more"
        )
