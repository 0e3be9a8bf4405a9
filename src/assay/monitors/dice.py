"""DICE: judge by the few weights of the last layer that matter most (Sun and Li 2022)."""

import numpy as np
import torch
from torch import Tensor

from assay.monitors.metadata import Metadata
from assay.monitors.parts.exponentials import log_sum_exp
from assay.monitors.parts.last_layer import LastLayer
from assay.monitors.parts.last_layer_reader import _LastLayerReader
from assay.monitors.parts.row_blocks import row_blocks
from assay.monitors.parts.top_values import checked_percentile
from assay.trace import Trace

_ROWS = 1024  # scored at a time: intermediate results stay in cache


class DICE(_LastLayerReader):
    """s(x) = -log sum_k exp((M * W) f(x) + b)_k, with M one where the contribution V = W * (mean f) is above
    its `percentile` over all weights, else zero (Sun and Li 2022, "directed sparsification").

    W and b are recovered from the training Trace (see `head.py`), so the layer must be the input of the last
    Linear. The authors' code takes 90 for CIFAR and 70 for ImageNet.
    """

    metadata = Metadata(
        score="energy of logits made with the weights that contribute most",
        fit="N * (d + C)**2",
        cost="N * d * C",
        state="4 * d * C",
        paper="Sun and Li",
        year=2022,
    )

    weight_: Tensor
    bias_: Tensor

    def __init__(self, *, layer: str = "penultimate", percentile: float = 90.0) -> None:
        self.layer = layer
        self.percentile = checked_percentile(percentile)

    def _use(self, last: LastLayer) -> None:
        contribution = last.weight * last.mean
        least = float(np.percentile(contribution.numpy(), self.percentile))
        self.weight_ = torch.where(contribution > least, last.weight, 0).float().contiguous()
        self.bias_ = last.bias
        self.remedy_ = last.undetermined

    def _score(self, trace: Trace) -> Tensor:
        blocks = row_blocks(trace.layer(self.layer), _ROWS)
        # (classes, rows) is the faster way round where classes are few.
        logits = torch.cat([self.weight_ @ rows.float().T for rows in blocks], dim=1)
        return -log_sum_exp(logits.T.double() + self.bias_)
