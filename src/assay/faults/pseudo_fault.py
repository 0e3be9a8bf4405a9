"""Pseudo-faults: known inputs moved a small part of the way to inputs that make no sense.

Real faults are faint more often than not, and what each looks like is not known beforehand. What they do to a
network, its input, its features and its output can still be imitated from known inputs alone. The default
guard learns from these what its members see (`assay.default_guard`); no fault of the library is among them.
"""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from assay.faults.pseudo_unknown import PseudoUnknown, mixtures_for
from assay.faults.tokens import IDS
from assay.network import Network
from assay.trace import Inputs

STRENGTHS = (0.25, 0.1)
"""How far from a known input, 0, to what makes no sense, 1."""


def pseudo_faults(
    inputs: Inputs, network: Network | None = None, *, seed: int = 0
) -> Iterator[tuple[str, Inputs]]:
    """Names and inputs, one after another: every mixture of these inputs at every strength.

    >>> [name for name, _ in pseudo_faults(torch.rand(4, 3))][:3]
    ['shuffled_values 0.25', 'shuffled_values 0.1', 'blended 0.25']
    """
    return _faint(inputs, mixtures_for(inputs, network), seed)


def _faint(inputs: Inputs, mixtures: Mapping[str, PseudoUnknown], seed: int) -> Iterator[tuple[str, Inputs]]:
    for name, mixture in mixtures.items():
        mixed = mixture(inputs, seed)
        for strength in STRENGTHS:
            yield f"{name} {strength}", _part_of_the_way(inputs, mixed, strength, mixture, seed)


def _part_of_the_way(
    inputs: Inputs, mixed: Inputs, strength: float, mixture: PseudoUnknown, seed: int
) -> Inputs:
    """Of symbols this share is taken from the mixture; numbers are moved by it."""
    if isinstance(inputs, dict):
        assert isinstance(mixed, dict)
        return {**mixed, IDS: _some_symbols(inputs[IDS], mixed[IDS], strength, seed)}
    assert isinstance(inputs, Tensor)
    assert isinstance(mixed, Tensor)
    if mixture.kind in ("tokens", "bytes"):
        return _some_symbols(inputs, mixed, strength, seed)
    if inputs.is_floating_point():
        return inputs.lerp(mixed, strength)
    return inputs.float().lerp(mixed.float(), strength).round().to(inputs.dtype)


def _some_symbols(ids: Tensor, mixed: Tensor, strength: float, seed: int) -> Tensor:
    taken = torch.rand(ids.shape, generator=torch.Generator().manual_seed(seed)) < strength
    return torch.where(taken, mixed, ids)
