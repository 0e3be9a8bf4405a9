"""Entropy: doubt the prediction whose probabilities are spread out."""

import torch
from torch import Tensor

from assay.monitors.monitor import Monitor
from assay.trace import Trace


class Entropy(Monitor):
    """s(x) = -sum_k p_k log p_k in nats, p = softmax(f(x)); from 0 to log(classes).

    >>> trace = Trace(torch.tensor([[0.0, 0.0], [800.0, 0.0]]))
    >>> Entropy().fit(trace).score(trace).tolist()
    [0.6931471805599453, 0.0]
    """

    def _score(self, trace: Trace) -> Tensor:
        # exp(log p) log p is 0 where p underflows, because log p stays finite.
        logs = torch.log_softmax(trace.logits.double(), dim=1)
        return (logs.exp() * -logs).sum(dim=1)
