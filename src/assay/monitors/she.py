"""SHE: doubt features unlike the stored pattern of the predicted class (Zhang et al. 2023)."""

from collections.abc import Iterator

import torch
from torch import Tensor

from assay.monitors.metadata import Labels, Metadata, Needs
from assay.monitors.monitor import Monitor
from assay.monitors.parts.class_rows import UNSEEN, named, some_class, teaching
from assay.monitors.parts.class_sums import ClassSums
from assay.monitors.parts.gathered import Gathered
from assay.monitors.parts.row_blocks import in_blocks
from assay.trace import Trace


class SHE(Monitor):
    """s(x) = -f(x)' m_c, with c the predicted class and m_c the mean feature of the rows of class c that the
    network gets right (simplified Hopfield energy, Eq. 8 of Zhang et al.).

    Without labels every prediction counts as right. A prediction of a class without such rows gets the
    largest score there is, and `remedy_` names the class.
    """

    metadata = Metadata(
        score="-z' (mean feature of the predicted class)",
        needs=Needs(labels=Labels.OPTIONAL),
        fit="N * d",
        cost="N * d",
        state="4 * d * C",
        paper="Zhang et al.",
        year=2023,
    )

    patterns_: Tensor
    seen_: Tensor

    def __init__(self, *, layer: str = "penultimate") -> None:
        self.layer = layer

    def _gather(self, traces: Iterator[Trace]) -> dict[str, Gathered]:
        found = ClassSums(self.classes_, self.dimensions_[self.layer])
        parts = ((trace.layer(self.layer), trace.predictions, teaching(trace)) for trace in traces)
        for features, classes, right in in_blocks(parts):
            found.add(features[right], classes[right])
        return {"found": found}

    def _describe(self, found: ClassSums) -> None:
        self.seen_ = found.counts > 0
        some_class(bool(self.seen_.any()))
        self.patterns_ = found.means.float()
        if absent := (~self.seen_).nonzero().squeeze(1).tolist():
            self.remedy_ = (
                f"the network got no row of {named(absent)} right, so that predictions of them get "
                "the largest score there is; fit on more rows"
            )

    def _score(self, trace: Trace) -> Tensor:
        features, patterns = trace.layer(self.layer).float(), self.patterns_[trace.predictions]
        products: Tensor = torch.linalg.vecdot(features, patterns)
        return self._unless_unseen(products, trace)

    def _traced_score(self, trace: Trace) -> Tensor:
        patterns = self.patterns_[trace.predictions]
        return self._unless_unseen((trace.layer(self.layer).float() * patterns).sum(dim=1), trace)

    def _unless_unseen(self, products: Tensor, trace: Trace) -> Tensor:
        return (-products.double()).masked_fill(~self.seen_[trace.predictions], UNSEEN)
