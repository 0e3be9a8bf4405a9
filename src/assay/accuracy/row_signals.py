"""Row signals: what a single prediction tells about itself, from its outputs and its features."""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from assay.monitors import KNN, Mahalanobis, Monitor
from assay.storage import storable
from assay.trace import Trace
from assay.volatility.certainty import Doubles

OUTPUTS = ("confidence", "margin", "negative entropy", "energy", "logit margin", "largest logit")
FEATURES = ("distance to neighbours", "distance to classes")

WIDEST = 128
"""Features beyond so many are projected at random, which keeps distances (Johnson and Lindenstrauss 1984)."""

_REDUCED = "reduced"


@storable("accuracy.RowSignals")
class RowSignals:
    """The six output signals and, for Traces with features, two distances to the rows it was fitted on."""

    def __init__(self, layer: str | None, *, seed: int = 0) -> None:
        self.layer = layer
        self.seed = seed
        self.monitors_: list[Monitor] = []

    @classmethod
    def fitted(cls, trace: Trace, *, seed: int = 0) -> Self:
        """Fitted on a Trace: its penultimate layer or, without one, the first."""
        names = sorted(trace.features, key=lambda name: name != "penultimate")
        signals = cls(names[0] if names else None, seed=seed)
        if names:
            distances = (
                KNN(layer=_REDUCED, k=10, limit=500, seed=seed),
                Mahalanobis(layer=_REDUCED, estimator="ledoit_wolf"),
            )
            signals.monitors_ = [monitor.fit(signals._reduced(trace)) for monitor in distances]
        return signals

    @property
    def names(self) -> tuple[str, ...]:
        return (*OUTPUTS, *(FEATURES if self.monitors_ else ()))

    def of(self, trace: Trace) -> Doubles:
        """(N, signals); a row that is not finite stays so."""
        columns = _output_signals(trace.logits)
        if self.monitors_:
            reduced = self._reduced(trace)
            columns += [monitor.score(reduced) for monitor in self.monitors_]
            columns[-1] = columns[-1].clamp(min=0).sqrt()  # a distance, not its square
        return np.asarray(torch.stack(columns, dim=1).numpy())

    def state(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        signals = cls(state["layer"], seed=state["seed"])
        signals.monitors_ = list(state["monitors_"])
        return signals

    def _reduced(self, trace: Trace) -> Trace:
        assert self.layer is not None
        features = trace.layer(self.layer)
        width = features.shape[1]
        if width > WIDEST:
            generator = torch.Generator().manual_seed(self.seed)
            features = features.float() @ (torch.randn(width, WIDEST, generator=generator) / WIDEST**0.5)
        return Trace(trace.logits, {_REDUCED: features}, trace.predictions)


def _output_signals(logits: Tensor) -> list[Tensor]:
    values = logits.double()
    energy = values.logsumexp(dim=1)
    largest = values.topk(2, dim=1).values
    logs = values - energy[:, None]
    probabilities = logs.exp()
    top = (largest - energy[:, None]).exp()
    # x exp(x) is zero at minus infinity, which `xlogy` knows.
    entropy = torch.special.xlogy(probabilities, probabilities).sum(dim=1)
    return [top[:, 0], top[:, 0] - top[:, 1], entropy, energy, largest[:, 0] - largest[:, 1], largest[:, 0]]
