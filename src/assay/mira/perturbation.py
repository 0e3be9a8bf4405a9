"""Moves inputs towards the decision boundary by any epsilon (MIRA, Eq. 2)."""

import math
from collections.abc import Callable
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor

from assay.engine import progress
from assay.errors import GradientError, InputError
from assay.faults import attacked, fgsm_direction, pgd
from assay.faults.norms import Norm, random_signs, support
from assay.network import Network, length, perturbable, rows
from assay.trace import Inputs

PerturbationMethod: TypeAlias = (
    Literal["fgsm", "pgd", "random_sign"] | Callable[[Network, Inputs, Tensor, float], Inputs]
)
"""A named attack of `assay.faults`, or a function (network, inputs, labels, epsilon) -> inputs."""

Bounds: TypeAlias = tuple[float | None, float | None]


def check_method(method: PerturbationMethod) -> None:
    names = get_args(get_args(PerturbationMethod)[0])
    if not callable(method) and method not in names:
        raise InputError(f"expected perturbation to be a function or one of {list(names)}, got {method!r}")


class Perturbation:
    """`moved(part, epsilon)`: the rows `part` of the inputs, moved by epsilon.

    FGSM and random signs have the same direction at every epsilon. It is computed once, batch by batch, and
    kept in one byte per value for the l-inf norm (four otherwise). Other attacks run again at each epsilon.
    """

    def __init__(
        self,
        method: PerturbationMethod,
        network: Network,
        inputs: Inputs,
        labels: Tensor,
        *,
        norm: Norm = "linf",
        bounds: Bounds = (None, None),
        seed: int = 0,
    ) -> None:
        self.method, self.network, self.inputs, self.labels = method, network, inputs, labels
        self.norm, self.bounds, self.seed = norm, bounds, seed
        self._directions: Tensor | None = None
        if method in ("fgsm", "random_sign"):
            self._directions = self._all_directions()

    def moved(self, part: slice | Tensor, epsilon: float) -> Inputs:
        # What moves is what the network differentiates: for texts, their embeddings.
        inputs = self.network.embed(rows(self.inputs, part))
        if epsilon == 0:
            return inputs
        low, high = self.bounds
        if self._directions is not None:
            return attacked(inputs, self._directions[part], epsilon, low=low, high=high)
        if callable(self.method):
            return self.method(self.network, inputs, self.labels[part], epsilon)
        labels = self.labels[part]
        return pgd(self.network, inputs, labels, epsilon, self.norm, low=low, high=high, seed=self.seed)

    def scale(self) -> float:
        """The epsilon at which every value that moves does so by one standard deviation of the inputs."""
        sample = self._sample(self.network.batch_size).double()
        spread = float(sample.std()) if sample.numel() > 1 else 0.0
        values = sample[0].numel()
        moved = {"linf": 1.0, "l2": math.sqrt(values), "l1": float(support(values))}[self.norm]
        return moved * (spread or 1.0)

    def limit(self) -> float:
        """The largest epsilon worth trying: beyond it inputs stop changing or resemble no data."""
        low, high = self.bounds
        values = self._sample(1).numel()
        if low is None or high is None:
            return 1e4 * self.scale()
        return {"linf": 1.0, "l2": math.sqrt(values), "l1": float(values)}[self.norm] * (high - low)

    def _sample(self, count: int) -> Tensor:
        return perturbable(self.network.embed(rows(self.inputs, slice(0, count)))).detach()

    def _all_directions(self) -> Tensor:
        size, whole = self.network.batch_size, None
        for start in progress(range(0, length(self.inputs), size), "finding directions"):
            part = slice(start, start + size)
            direction = self._direction(part, start)
            if self.norm == "linf":
                direction = direction.to(torch.int8)
            if whole is None:
                whole = direction.new_empty((length(self.inputs), *direction.shape[1:]))
            whole[part] = direction
        assert whole is not None
        return whole

    def _direction(self, part: slice, start: int) -> Tensor:
        inputs = rows(self.inputs, part)
        if self.method == "random_sign":
            return random_signs(perturbable(self.network.embed(inputs)), self.norm, self.seed + start)
        try:
            return fgsm_direction(self.network, inputs, self.labels[part], self.norm)
        except GradientError as error:
            raise GradientError(
                f"expected a network with gradients for perturbation='fgsm', got {self.network!r}; pass the "
                "original torch module, or perturbation='random_sign', which needs none"
            ) from error
