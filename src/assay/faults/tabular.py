"""Faults of tabular rows (N, features): noise, drift, failing sensors and columns that were mixed up.

Every size is in units of the feature's own standard deviation over the rows given, so features need no
common scale. A broken sensor is broken in all rows, and the more severe fault breaks those and others.
A feature that never varies has no such unit, and noise leaves it as it is.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.errors import InputError
from assay.faults.partners import partners
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


def outliers(table: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Of each row 2, 5, 10, 20 or 40 % of the values spike by five standard deviations, up or down."""
    share = (0.02, 0.05, 0.1, 0.2, 0.4)[severity - 1]
    struck = _struck(table, share, severity, generator)
    return table + struck * 5 * _spread(table) * _signs(table.shape, generator)


def rounding(table: Tensor, severity: int, _: torch.Generator) -> Tensor:
    """Values are only known to 0.25, 0.5, 1, 2 or 4 standard deviations, counted from the mean."""
    step = (0.25, 0.5, 1.0, 2.0, 4.0)[severity - 1] * _spread(table)
    mean = _mean(table)
    return torch.where(step > 0, mean + ((table - mean) / step).round() * step, table)


def feature_dropout(table: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Of each row 5, 10, 20, 40 or 60 % of the values are missing and arrive as the feature's mean."""
    missing = _struck(table, (0.05, 0.1, 0.2, 0.4, 0.6)[severity - 1], severity, generator)
    return torch.where(missing, _mean(table), table)


def scaling_drift(table: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Every sensor's gain drifts by up to 5, 10, 20, 40 or 80 % and its zero by as much of its spread."""
    c = (0.05, 0.1, 0.2, 0.4, 0.8)[severity - 1]
    drift = c * (2 * torch.rand(2, table.shape[1], generator=generator) - 1).to(table)
    return table * (1 + drift[0]) + drift[1] * _spread(table)


def offset(table: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Every feature is off by 0.1, 0.25, 0.5, 1 or 2 standard deviations, in all rows alike, up or down."""
    c = (0.1, 0.25, 0.5, 1.0, 2.0)[severity - 1]
    return table + c * _spread(table) * _signs(table.shape[1:], generator)


def unit_change(table: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """10, 20, 40, 60 or 80 % of the features arrive in another unit, ten times as large."""
    changed = _features(table, _BROKEN[severity - 1], severity, generator)
    result = table.clone()
    result[:, changed] *= 10
    return result


def stuck_sensor(table: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """10, 20, 40, 60 or 80 % of the features repeat in all rows the value they had in one."""
    stuck = _features(table, _BROKEN[severity - 1], severity, generator)
    held = torch.randint(len(table), (1,), generator=generator)
    result = table.clone()
    result[:, stuck] = table[held][:, stuck]
    return result


def saturated_sensor(table: Tensor, severity: int, _: torch.Generator) -> Tensor:
    """Sensors end at 2, 1.5, 1, 0.5 or 0.25 standard deviations from the mean, on both sides."""
    reach = (2.0, 1.5, 1.0, 0.5, 0.25)[severity - 1] * _spread(table)
    mean = _mean(table)
    return torch.where(reach > 0, table.clamp(mean - reach, mean + reach), table)


def swapped_columns(table: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """10, 20, 40, 60 or 80 % of the features have changed places in pairs, at least one pair."""
    order = torch.randperm(table.shape[1], generator=generator)
    count = min(table.shape[1] // 2, max(severity, round(_BROKEN[severity - 1] * table.shape[1] / 2)))
    one, other = order[: 2 * count : 2], order[1 : 2 * count : 2]
    result = table.clone()
    result[:, one], result[:, other] = table[:, other], table[:, one]
    return result


def misaligned_columns(table: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """10, 20, 40, 60 or 80 % of the features come from another row, as after a join by the wrong key."""
    moved = _features(table, _BROKEN[severity - 1], severity, generator)
    result = table.clone()
    result[:, moved] = table[:, moved][partners(len(table), generator)]
    return result


_BROKEN = (0.1, 0.2, 0.4, 0.6, 0.8)


def _features(table: Tensor, share: float, severity: int, generator: torch.Generator) -> Tensor:
    """The places of that share of the features; larger shares contain the smaller."""
    features = table.shape[1]
    return torch.randperm(features, generator=generator)[: _count(share, severity, features)]


def _struck(table: Tensor, share: float, severity: int, generator: torch.Generator) -> Tensor:
    """A mask of that share of the values of every row; larger shares contain the smaller."""
    ranks = torch.rand(table.shape, generator=generator).argsort(dim=1).argsort(dim=1)
    return ranks < _count(share, severity, table.shape[1])


def _count(share: float, severity: int, features: int) -> int:
    """The number of features in this share; if they are few, at least one more for every severity."""
    return min(features, max(severity, round(share * features)))


def _signs(shape: torch.Size, generator: torch.Generator) -> Tensor:
    return torch.randint(0, 2, shape, generator=generator) * 2 - 1


def _mean(table: Tensor) -> Tensor:
    return table.double().mean(dim=0).to(table)


def _spread(table: Tensor) -> Tensor:
    return table.double().std(dim=0).to(table)


TABULAR = {
    fault.name: fault
    for fault in (
        TabularFault("gaussian_noise", "noise", gaussian_noise),
        TabularFault("outliers", "noise", outliers),
        TabularFault("rounding", "noise", rounding),
        TabularFault("scaling_drift", "shift", scaling_drift),
        TabularFault("offset", "shift", offset),
        TabularFault("unit_change", "shift", unit_change),
        TabularFault("feature_dropout", "anomaly", feature_dropout),
        TabularFault("stuck_sensor", "anomaly", stuck_sensor),
        TabularFault("saturated_sensor", "anomaly", saturated_sensor),
        TabularFault("swapped_columns", "anomaly", swapped_columns),
        TabularFault("misaligned_columns", "anomaly", misaligned_columns),
    )
}
