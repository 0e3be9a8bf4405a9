"""Entropy: doubt the prediction whose probabilities are spread out."""

from torch import Tensor

from assay.monitors.metadata import Metadata
from assay.monitors.monitor import Monitor
from assay.monitors.parts.exponentials import Exponentials
from assay.trace import Trace


class Entropy(Monitor):
    """s(x) = -sum_k p_k log p_k in nats, p = softmax(f(x)); from 0 to log(classes).

    >>> import torch
    >>> trace = Trace(torch.tensor([[0.0, 0.0], [800.0, 0.0]]))
    >>> Entropy().fit(trace).score(trace).tolist()
    [0.6931471805599453, 0.0]
    """

    metadata = Metadata(score="-Σ p log p")

    def _score(self, trace: Trace) -> Tensor:
        return Exponentials.of(trace.logits).entropy
