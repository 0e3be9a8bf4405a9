"""Squash: temper a function of the output that flattens out away from the bulk, instead of the output itself.

If the log density is not a concave function of the output, outputs jump from one value to another between two
neighbouring temperatures (a first-order transition). Values in between are never sampled, and more rungs do
not help, since every rung is on one side or the other. A monotone function of the output does not change the
bins, but it changes the effect of temperature: with exp(-beta f(z)) and f rising ever more slowly away from
the bulk, the values in between become likely at some beta. Generalised ensembles do the same with other
functions (Kim, Keyes and Straub 2010).
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.errors import InputError
from assay.omniinput.sampling.distribution import OutputDistribution

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Squash:
    """f(z) = length (1 - exp(-|z - centre| / length)), with the sign of z - centre; its slope there is 1."""

    centre: float
    length: float

    def __post_init__(self) -> None:
        if not (np.isfinite(self.centre) and np.isfinite(self.length) and self.length > 0):
            raise InputError(
                "expected squash=(centre, length) with a positive length, got "
                f"({self.centre}, {self.length}); give the output of most inputs, and about a third of the "
                "distance from there to the farthest bin"
            )

    def __call__(self, outputs: Tensor) -> Tensor:
        away = outputs.double() - self.centre
        return -away.sign() * self.length * torch.expm1(-away.abs() / self.length)

    def edges(self, edges: Array | None) -> Array | None:
        return None if edges is None else np.asarray(self(torch.from_numpy(edges)).numpy())

    def undone(self, dist: OutputDistribution, edges: Array | None) -> OutputDistribution:
        """A distribution of f(z) as one of z, with the edges that were asked for."""
        assert edges is not None
        values = dist.kept.outputs
        with np.errstate(divide="ignore"):
            away = -self.length * np.log1p(-np.abs(values) / self.length)
        kept = replace(dist.kept, outputs=np.clip(self.centre + np.sign(values) * away, edges[0], edges[-1]))
        found = {**dist.diagnostics, "squash": [self.centre, self.length]}
        return replace(dist, edges=edges, kept=kept, diagnostics=found)


@dataclass(frozen=True)
class Identity:
    """No squash: f(z) = z."""

    def __call__(self, outputs: Tensor) -> Tensor:
        return outputs

    def edges(self, edges: Array | None) -> Array | None:
        return edges

    def undone(self, dist: OutputDistribution, edges: Array | None) -> OutputDistribution:
        return dist
