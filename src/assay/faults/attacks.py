"""The adversarial faults as templates: severity chooses epsilon.

Severity 4 is the usual budget of the robustness literature at 3x32x32: 8/255 in l-inf, 0.5 in l2, 12 in l1;
each step doubles it. Budgets in l2 grow with the square root of the number of values and in l1 with their
number, as the same change of every value would. Tabular rows have no common range: they are moved in units
of each feature's standard deviation, 0.4 of it at severity 4 in l-inf, and are not bounded.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from assay.errors import InputError
from assay.faults.adversarial import fgsm, pgd, random_sign
from assay.faults.norms import Norm
from assay.faults.template import check_images, check_severity
from assay.network import Network

USUAL_SIZE = 3 * 32 * 32
USUAL = {"linf": 8 / 255, "l2": 0.5, "l1": 12.0}
GROWTH = {"linf": 0.0, "l2": 0.5, "l1": 1.0}
ROW_SCALE = 0.4 / USUAL["linf"]


@dataclass(frozen=True)
class Attack:
    """An adversarial fault; called with the network and the true labels (None: its own predictions)."""

    name: str
    method: str
    norm: Norm
    category: str = field(default="adversarial", init=False)

    def __call__(
        self, inputs: Tensor, severity: int, seed: int = 0, *, network: Network, labels: Any = None
    ) -> Tensor:
        check_severity(severity)
        if isinstance(inputs, Tensor) and inputs.ndim == 2 and inputs.is_floating_point():
            return self._moved_rows(inputs, severity, seed, network, labels)
        check_images(inputs)
        epsilon = self.epsilon(severity, inputs[0].numel())
        return self._moved(inputs, epsilon, seed, network, labels, 0.0, 1.0)

    def epsilon(self, severity: int, size: int) -> float:
        """The length of the step for inputs of `size` values in [0, 1].

        >>> Attack("fgsm", "fgsm", "linf").epsilon(5, 784) * 255
        16.0
        """
        return float(USUAL[self.norm] * (size / USUAL_SIZE) ** GROWTH[self.norm] * 2.0 ** (severity - 4))

    def _moved_rows(self, table: Tensor, severity: int, seed: int, network: Network, labels: Any) -> Tensor:
        """Attacked as if every feature had standard deviation 1: a layer in front undoes the scaling."""
        if len(table) < 2:
            raise InputError(f"expected at least two rows to know each feature's spread, got {len(table)}")
        spread = table.double().std(dim=0).to(table)
        spread = torch.where(spread > 0, spread, torch.ones_like(spread))
        scaled = Network(
            _Rescaled(spread, network.module),
            layers=(),
            batch_size=network.batch_size,
            output=network.output,
            rows=network.rows,
            ignore_index=network.ignore_index,
        )
        scaled.reader = network.reader
        epsilon = ROW_SCALE * self.epsilon(severity, table.shape[1])
        return self._moved(table / spread, epsilon, seed, scaled, labels, None, None) * spread

    def _moved(
        self,
        inputs: Tensor,
        epsilon: float,
        seed: int,
        network: Network,
        labels: Any,
        low: float | None,
        high: float | None,
    ) -> Tensor:
        if self.method == "fgsm":
            moved = fgsm(network, inputs, labels, epsilon, self.norm, low=low, high=high)
        elif self.method == "pgd":
            moved = pgd(network, inputs, labels, epsilon, self.norm, low=low, high=high, seed=seed)
        else:
            moved = random_sign(inputs, epsilon, self.norm, low=low, high=high, seed=seed)
        assert isinstance(moved, Tensor)
        return moved


class _Rescaled(nn.Module):
    """A module that takes standardised rows."""

    spread: Tensor

    def __init__(self, spread: Tensor, module: nn.Module) -> None:
        super().__init__()
        self.register_buffer("spread", spread)
        self.module = module
        self.differentiable = getattr(module, "differentiable", True)

    def forward(self, rows: Tensor) -> object:
        return self.module(rows * self.spread)


_METHODS = ("fgsm", "pgd", "random_sign")
_NORMS: tuple[Norm, ...] = ("linf", "l2", "l1")

ADVERSARIAL = {
    name: Attack(name, method, norm)
    for method in _METHODS
    for norm in _NORMS
    for name in [method if norm == "linf" else f"{method}_{norm}"]
}
