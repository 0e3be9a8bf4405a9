"""Faults of tabular rows (N, features): noise and failing sensors.

Every size is in units of the feature's own standard deviation over the rows given, so features need no
common scale. A broken sensor is broken in all rows, and the more severe fault breaks those and others.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.errors import InputError
from assay.faults.template import check_severity


@dataclass(frozen=True)
class TabularFault:
    """A fault of rows of numbers, at least two rows so that features have a spread."""

    name: str
    category: str
    corrupt: Callable[[Tensor, int, torch.Generator], Tensor]
    kind: str = "tabular"

    def __call__(self, inputs: Tensor, severity: int, seed: int = 0) -> Tensor:
        check_severity(severity)
        if not isinstance(inputs, Tensor) or inputs.ndim != 2 or not inputs.is_floating_point():
            raise InputError("expected floating-point rows of shape (N, features); convert the table first")
        if len(inputs) < 2 or not torch.isfinite(inputs).all():
            raise InputError(f"expected at least two finite rows, got {len(inputs)}; clean the table first")
        return self.corrupt(inputs, severity, torch.Generator().manual_seed(seed)).to(inputs)


def gaussian_noise(table: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Normal noise of 0.1, 0.25, 0.5, 1 or 2 standard deviations."""
    c = (0.1, 0.25, 0.5, 1.0, 2.0)[severity - 1]
    return table + c * _spread(table) * torch.randn(table.shape, generator=generator)


def feature_dropout(table: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Of each row 5, 10, 20, 40 or 60 % of the values are missing and arrive as the feature's mean."""
    share = (0.05, 0.1, 0.2, 0.4, 0.6)[severity - 1]
    ranks = torch.rand(table.shape, generator=generator).argsort(dim=1).argsort(dim=1)
    missing = ranks < _count(share, severity, table.shape[1])
    return torch.where(missing, table.double().mean(dim=0).to(table), table)


def scaling_drift(table: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Every sensor's gain drifts by up to 5, 10, 20, 40 or 80 % and its zero by as much of its spread."""
    c = (0.05, 0.1, 0.2, 0.4, 0.8)[severity - 1]
    drift = c * (2 * torch.rand(2, table.shape[1], generator=generator) - 1).to(table)
    return table * (1 + drift[0]) + drift[1] * _spread(table)


def stuck_sensor(table: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """10, 20, 40, 60 or 80 % of the features repeat in all rows the value they had in one."""
    share = (0.1, 0.2, 0.4, 0.6, 0.8)[severity - 1]
    features = table.shape[1]
    stuck = torch.randperm(features, generator=generator)[: _count(share, severity, features)]
    held = torch.randint(len(table), (1,), generator=generator)
    result = table.clone()
    result[:, stuck] = table[held][:, stuck]
    return result


def _count(share: float, severity: int, features: int) -> int:
    """The number of features in this share; if they are few, at least one more for every severity."""
    return min(features, max(severity, round(share * features)))


def _spread(table: Tensor) -> Tensor:
    return table.double().std(dim=0).to(table)


TABULAR = {
    fault.name: fault
    for fault in (
        TabularFault("gaussian_noise", "noise", gaussian_noise),
        TabularFault("feature_dropout", "anomaly", feature_dropout),
        TabularFault("scaling_drift", "shift", scaling_drift),
        TabularFault("stuck_sensor", "anomaly", stuck_sensor),
    )
}
