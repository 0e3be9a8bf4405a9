"""SHE: doubt features unlike the stored pattern of the predicted class (Zhang et al. 2023)."""

from collections.abc import Iterator

import torch
from torch import Tensor

from assay.monitors.blocks import fitting_classes, in_blocks
from assay.monitors.monitor import Monitor
from assay.trace import Trace


class SHE(Monitor):
    """s(x) = -f(x)' m_c, with c the predicted class and m_c the mean feature of the rows of class c that the
    network gets right (simplified Hopfield energy, Eq. 8 of Zhang et al.).

    Without labels every prediction counts as right. A class without such rows has the zero pattern, so that
    what is predicted as it scores 0, far above typical inputs; `remedy_` names such classes. Keeps C d
    numbers.
    """

    patterns_: Tensor

    def __init__(self, layer: str = "penultimate") -> None:
        self.layer = layer

    def _fit(self, traces: Iterator[Trace]) -> None:
        parts = ((trace.layer(self.layer), fitting_classes(trace), trace.predictions) for trace in traces)
        sums, counts = torch.empty(0), torch.empty(0)
        for features, classes, predictions in in_blocks(parts):
            if not len(counts):
                sums = torch.zeros(self.classes_, features.shape[1], dtype=torch.float64)
                counts = torch.zeros(self.classes_, dtype=torch.float64)
            right = classes == predictions
            sums.index_add_(0, classes[right], features[right].double())
            counts += torch.bincount(classes[right], minlength=self.classes_)
        self.patterns_ = (sums / counts.clamp(min=1)[:, None]).float()
        if absent := (counts == 0).nonzero().squeeze(1).tolist():
            self.remedy_ = (
                f"the network got no row of classes {absent} right, so that what it predicts as one of them "
                "scores 0; fit on more rows"
            )

    def _score(self, trace: Trace) -> Tensor:
        patterns = self.patterns_[trace.predictions]
        products: Tensor = torch.linalg.vecdot(trace.layer(self.layer).float(), patterns)
        return -products
