"""SCALE: magnify the logits of inputs whose features are strong in few places (Xu et al. 2024)."""

import torch
from torch import Tensor

from assay.monitors.metadata import Metadata
from assay.monitors.parts.exponentials import log_sum_exp
from assay.monitors.parts.last_layer import LastLayer
from assay.monitors.parts.last_layer_reader import _LastLayerReader
from assay.monitors.parts.row_blocks import row_blocks
from assay.monitors.parts.row_sums import ratio_of_sums
from assay.monitors.parts.top_values import checked_percentile, count_above, top_values
from assay.trace import Trace

_ROWS = 1024  # scored at a time: intermediate results stay in cache


class SCALE(_LastLayerReader):
    """s(x) = -log sum_k exp(W (e^r f) + b)_k, with r = sum f / sum of the features f above their
    `percentile` in this input (Xu, Chen, Franchi and Yao 2024).

    ASH-S without the pruning. As W (e^r f) + b = e^r (logits - b) + b, only the bias of the last layer is
    needed, and no product at all. It is recovered from the training Trace (see `head.py`), so the layer must
    be the input of the last Linear. 85 is the authors' default.

    Made for features that are never negative; `remedy_` says where they are.
    """

    metadata = Metadata(
        score="energy of the logits of features scaled by exp(sum / sum of the strongest)",
        fit="N * (d + C)**2",
        cost="N * (d + C)",
        state="8 * C",
        paper="Xu et al.",
        year=2024,
    )

    bias_: Tensor

    def __init__(self, *, layer: str = "penultimate", percentile: float = 85.0) -> None:
        self.layer = layer
        self.percentile = checked_percentile(percentile)

    def _use(self, last: LastLayer) -> None:
        self.bias_ = last.bias
        self.remedy_ = "; ".join(filter(None, [last.undetermined, last.negative("SCALE")]))

    def _score(self, trace: Trace) -> Tensor:
        blocks = row_blocks(trace.layer(self.layer), _ROWS)
        scale = torch.cat([self._ratios(rows.float()) for rows in blocks]).exp()
        return -log_sum_exp(scale[:, None] * (trace.logits.double() - self.bias_) + self.bias_)

    def _ratios(self, features: Tensor) -> Tensor:
        count = count_above(self.percentile, self.dimensions_[self.layer])
        ratio = ratio_of_sums(features, top_values(features, count))
        # e to minus infinity is an ordinary number.
        return torch.where(torch.isfinite(ratio), ratio, torch.nan)
