"""MaxSoftmax: doubt the prediction whose top probability is low (Hendrycks and Gimpel 2017)."""

from torch import Tensor

from assay.monitors.metadata import Metadata
from assay.monitors.monitor import Monitor
from assay.monitors.parts.exponentials import doubt
from assay.trace import Trace


class MaxSoftmax(Monitor):
    """s(x) = 1 - max_k softmax(f(x))_k, in [0, 1 - 1/classes].

    Computed as the sum of the other probabilities, which does not round to zero where the network is sure:
    scores of confident inputs keep their order.

    >>> import torch
    >>> trace = Trace(torch.tensor([[40.0, 0.0], [0.0, 0.0]]))
    >>> MaxSoftmax().fit(trace).score(trace).tolist()
    [4.248354255291589e-18, 0.5]
    """

    metadata = Metadata(score="1 - max p", paper="Hendrycks and Gimpel", year=2017)

    def _score(self, trace: Trace) -> Tensor:
        return doubt(trace.logits)
