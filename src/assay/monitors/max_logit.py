"""MaxLogit: doubt the prediction whose top logit is low (Hendrycks et al. 2022)."""

from torch import Tensor

from assay.monitors.metadata import Metadata
from assay.monitors.monitor import Monitor
from assay.trace import Trace


class MaxLogit(Monitor):
    """s(x) = -max_k f_k(x).

    >>> import torch
    >>> trace = Trace(torch.tensor([[3.0, 1.0], [0.5, 0.0]]))
    >>> MaxLogit().fit(trace).score(trace).tolist()
    [-3.0, -0.5]
    """

    metadata = Metadata(score="-max f", paper="Hendrycks et al.", year=2022)

    def _score(self, trace: Trace) -> Tensor:
        return -trace.logits.amax(dim=1)
