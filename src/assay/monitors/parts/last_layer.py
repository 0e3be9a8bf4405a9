"""The last linear layer and what goes into it, from one pass over a stream."""

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor

from assay.monitors.parts.gathered import Gathered
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


class LastLayerFit(Gathered):
    """What the last layer is recovered from."""

    def __init__(self, layer: str, size: int, classes: int) -> None:
        self._head, self._means = HeadFit(layer, size, classes), RunningMean(size)
        self._smallest = float("inf")

    @classmethod
    def of(cls, traces: Iterable[Trace], layer: str, size: int, classes: int) -> "LastLayerFit":
        found = cls(layer, size, classes)
        for features, logits in in_blocks((trace.layer(layer), trace.logits) for trace in traces):
            found._head.add(features, logits)
            found._means.add(features)
            found._smallest = min(found._smallest, float(features.amin()))
        return found

    def merge(self, other: "LastLayerFit") -> None:
        self._head.merge(other._head)
        self._means.merge(other._means)
        self._smallest = min(self._smallest, other._smallest)

    def last_layer(self) -> LastLayer:
        head = self._head.head()
        return LastLayer(head.weight, head.bias, self._means.mean, self._smallest, head.rank)
