"""FDBD: doubt features close to the boundaries between classes (Liu and Qin 2024)."""

import torch
from torch import Tensor

from assay.monitors.metadata import Metadata
from assay.monitors.parts.last_layer import LastLayer
from assay.monitors.parts.last_layer_reader import _LastLayerReader
from assay.monitors.parts.row_sums import distance_from
from assay.trace import Trace

_EQUAL = 1e-6  # share of the largest distance between weights below which two differ by rounding


class FDBD(_LastLayerReader):
    """s(x) = -1 / (C - 1) sum over c != y of (l_y - l_c) / (||w_y - w_c|| ||f(x) - mu||): the mean distance
    of f(x) from the boundaries of its predicted class y, as a share of its distance from the mean feature.

    The fast decision boundary based detector of Liu and Qin 2024, their "fDBD"; it has no hyperparameter. w
    is recovered from the training Trace (see `head.py`), so the layer must be the input of the last Linear.
    Two classes with equal weights have no boundary; its distance counts as 0. OpenOOD may divide by ||f(x)||
    instead, chosen on data from outside.
    """

    metadata = Metadata(
        score="-(mean distance from the boundaries of the predicted class) / ‖z - mean‖",
        fit="N * (d + C)**2",
        cost="N * (d + C)",
        state="4 * d + 8 * C**2",
        paper="Liu and Qin",
        year=2024,
    )

    inverse_: Tensor
    mean_: Tensor

    def __init__(self, *, layer: str = "penultimate") -> None:
        self.layer = layer

    def _use(self, last: LastLayer) -> None:
        apart = torch.cdist(last.weight, last.weight, compute_mode="donot_use_mm_for_euclid_dist")
        others = max(1, self.classes_ - 1)
        self.inverse_ = torch.where(apart > _EQUAL * apart.max(), 1 / apart, 0) / others
        self.mean_ = last.mean.float()
        self.remedy_ = last.undetermined

    def _score(self, trace: Trace) -> Tensor:
        logits = trace.logits.double()
        margins = logits.amax(dim=1, keepdim=True) - logits
        boundaries = (margins * self.inverse_[trace.predictions]).sum(dim=1)
        return -boundaries / distance_from(self.mean_, trace.layer(self.layer))
