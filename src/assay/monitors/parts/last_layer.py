"""The last linear layer and what goes into it, from one pass over a stream."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from assay.monitors.parts.head import HeadFit
from assay.monitors.parts.row_blocks import in_blocks
from assay.monitors.parts.running_mean import RunningMean
from assay.trace import Trace


@dataclass(frozen=True)
class LastLayer:
    """logits = features weight' + bias, recovered by `HeadFit`; mean and smallest value of the features."""

    weight: Tensor
    bias: Tensor
    mean: Tensor
    smallest: float
    rank: int

    @classmethod
    def of(cls, traces: Iterator[Trace], layer: str, size: int, classes: int) -> "LastLayer":
        fit, means, smallest = HeadFit(layer, size, classes), RunningMean(size), float("inf")
        for features, logits in in_blocks((trace.layer(layer), trace.logits) for trace in traces):
            fit.add(features, logits)
            means.add(features)
            smallest = min(smallest, float(features.amin()))
        head = fit.head()
        return cls(head.weight, head.bias, means.mean, smallest, head.rank)

    @property
    def undetermined(self) -> str:
        """For `remedy_`: in how many directions the layer is not known; empty where it is in all."""
        size = self.weight.shape[1]
        if self.rank == size:
            return ""
        return (
            f"the features vary in {self.rank} of {size} directions, so that the last layer is known only "
            "there; fit on more rows, or ignore this where units are never active"
        )

    def negative(self, monitor: str) -> str:
        """For `remedy_`: that features are negative, for a monitor made for the output of a ReLU."""
        if self.smallest >= 0:
            return ""
        return (
            f"the features reach {self.smallest:.3g}, but {monitor} is made for layers that are never "
            "negative, as after a ReLU; compare it with another monitor before you rely on it"
        )
