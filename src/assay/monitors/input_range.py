"""InputRange: a rule that can be saved: no input value lies outside what the sensor can give."""

import torch
from torch import Tensor

from assay.errors import InputError
from assay.monitors.metadata import Metadata, Needs
from assay.monitors.monitor import Monitor
from assay.trace import Trace


class InputRange(Monitor):
    """s(x) = max_i (low_i - x_i, x_i - high_i, 0): how far the worst value of the input lies outside.

    low, high: numbers, or tensors of an input's shape for bounds per value. The rule itself is the
    threshold 0.

    >>> trace = Trace(torch.zeros(2, 2), inputs=torch.tensor([[0.5, 1.0], [0.5, -0.25]]))
    >>> InputRange(low=0.0, high=1.0).fit(trace).score(trace).tolist()
    [0.0, 0.25]
    """

    metadata = Metadata(
        score="how far the worst input value lies outside", needs=Needs(inputs=True), cost="N * v"
    )

    def __init__(self, *, low: float | Tensor, high: float | Tensor) -> None:
        if not bool((torch.as_tensor(low) <= torch.as_tensor(high)).all()):
            raise InputError(f"expected low at most high, got {low} and {high}")
        self.low = low
        self.high = high

    def _score(self, trace: Trace) -> Tensor:
        inputs = trace.known_inputs
        if not isinstance(inputs, Tensor):
            raise InputError(
                f"expected inputs in one tensor, got {sorted(inputs)}; use a Rule on one of them"
            )
        for bound in (self.low, self.high):
            if isinstance(bound, Tensor) and bound.ndim and bound.shape != inputs.shape[1:]:
                raise InputError(
                    f"expected inputs of the bounds' shape {tuple(bound.shape)}, "
                    f"got {tuple(inputs.shape[1:])}; give bounds as numbers, or of the input's shape"
                )
        values = inputs.double()
        outside = torch.maximum(self.low - values, values - self.high).flatten(1).amax(dim=1).clamp(min=0)
        return trace.of_inputs(outside)
