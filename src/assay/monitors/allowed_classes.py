"""AllowedClasses: a rule that can be saved: only these predictions make sense here."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from assay.errors import InputError
from assay.monitors.metadata import Metadata
from assay.monitors.monitor import Monitor
from assay.trace import Trace


class AllowedClasses(Monitor):
    """s(x) = 1 where the predicted class is not allowed, else 0.

    >>> trace = Trace(torch.eye(3))
    >>> AllowedClasses([0, 2]).fit(trace).score(trace).tolist()
    [0.0, 1.0, 0.0]
    """

    metadata = Metadata(score="1 where the predicted class is not allowed")

    def __init__(self, allowed: Sequence[int]) -> None:
        if not len(allowed):
            raise InputError(
                "expected at least one allowed class, got none; list the classes that make sense"
            )
        self.allowed = [int(label) for label in allowed]

    def _fit(self, traces: Iterator[Trace]) -> None:
        for trace in traces:
            classes = trace.logits.shape[1]
            if not 0 <= min(self.allowed) <= max(self.allowed) < classes:
                raise InputError(f"expected allowed classes from 0 to {classes - 1}, got {self.allowed}")

    def _score(self, trace: Trace) -> Tensor:
        wrong = torch.ones(trace.logits.shape[1], dtype=torch.float64)
        wrong[self.allowed] = 0.0
        return wrong[trace.predictions]
