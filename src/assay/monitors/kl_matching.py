"""KLMatching: doubt probabilities that look like those of no class (Hendrycks et al. 2022)."""

from collections.abc import Iterator

import torch
from torch import Tensor

from assay.monitors.metadata import Labels, Metadata, Needs
from assay.monitors.monitor import Monitor
from assay.monitors.parts.class_rows import fitting_classes
from assay.monitors.parts.class_sums import ClassSums
from assay.monitors.parts.exponentials import Exponentials
from assay.monitors.parts.gathered import Gathered
from assay.monitors.parts.row_blocks import in_blocks
from assay.trace import Trace


class KLMatching(Monitor):
    """s(x) = min_c KL(p(x) || d_c), with d_c the mean probabilities of class c.

    Rows are fitted under their label where the Trace has labels, else under their prediction. Classes
    without rows have no template and are left out.
    """

    metadata = Metadata(
        score="min over classes c of KL(p ‖ mean p of c)",
        needs=Needs(labels=Labels.OPTIONAL),
        fit="N * C",
        cost="N * C**2",
        state="8 * C**2",
        paper="Hendrycks et al.",
        year=2022,
    )

    log_templates_: Tensor

    def _gather(self, traces: Iterator[Trace]) -> dict[str, Gathered]:
        found = ClassSums(self.classes_, self.classes_)
        for logits, classes in in_blocks((trace.logits, fitting_classes(trace)) for trace in traces):
            found.add(torch.softmax(logits.double(), dim=1), classes)
        return {"found": found}

    def _describe(self, found: ClassSums) -> None:
        # A probability that underflowed to zero would make the divergence infinite.
        smallest = torch.finfo(torch.float64).tiny
        self.log_templates_ = found.means[found.counts > 0].clamp(min=smallest).log()

    def _score(self, trace: Trace) -> Tensor:
        found = Exponentials.of(trace.logits)
        cross = (self.log_templates_ @ found.probabilities).amax(dim=0)
        return (-found.entropy - cross).clamp(min=0)
