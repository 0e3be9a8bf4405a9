"""KLMatching: doubt probabilities that look like those of no class (Hendrycks et al. 2022)."""

from collections.abc import Iterator

import torch
from torch import Tensor

from assay.monitors.metadata import Labels, Metadata, Needs
from assay.monitors.monitor import Monitor
from assay.monitors.parts.class_rows import fitting_classes
from assay.monitors.parts.exponentials import Exponentials
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

    def _fit(self, traces: Iterator[Trace]) -> None:
        parts = ((trace.logits, fitting_classes(trace)) for trace in traces)
        sums, counts = torch.empty(0), torch.empty(0)
        for logits, classes in in_blocks(parts):
            if not len(counts):
                sums = torch.zeros(self.classes_, self.classes_, dtype=torch.float64)
                counts = torch.zeros(self.classes_, dtype=torch.float64)
            sums.index_add_(0, classes, torch.softmax(logits.double(), dim=1))
            counts += torch.bincount(classes, minlength=self.classes_)
        seen = counts > 0
        # A probability that underflowed to zero would make the divergence infinite.
        smallest = torch.finfo(torch.float64).tiny
        self.log_templates_ = (sums[seen] / counts[seen, None]).clamp(min=smallest).log()

    def _score(self, trace: Trace) -> Tensor:
        found = Exponentials.of(trace.logits)
        cross = (self.log_templates_ @ found.probabilities).amax(dim=0)
        return (-found.entropy - cross).clamp(min=0)
