"""ASH: judge by the few strongest features of an input (Djurisic, Bozanic, Ashok and Liu 2023)."""

import torch
from torch import Tensor

from assay.errors import InputError
from assay.monitors.metadata import Metadata
from assay.monitors.parts.exponentials import log_sum_exp
from assay.monitors.parts.last_layer import LastLayer
from assay.monitors.parts.last_layer_reader import _LastLayerReader
from assay.monitors.parts.row_blocks import row_blocks
from assay.monitors.parts.row_sums import ratio_of_sums
from assay.monitors.parts.top_values import checked_percentile, count_above, top_values
from assay.trace import Trace

VARIANTS = ("P", "B", "S")

_ROWS = 1024  # scored at a time: intermediate results stay in cache


class ASH(_LastLayerReader):
    """s(x) = -log sum_k exp(W f~ + b)_k, with f~ the features of x of which the smallest `percentile` per
    cent are set to zero and the rest is shaped (Algorithms 1 to 3 of Djurisic et al. 2023).

    variant="P" leaves the rest as it is; "B" makes all of it equal, with the sum of f; "S" multiplies it by
    exp(sum f / sum of the rest). The authors' code takes 90 for "S" on ImageNet, 95 on CIFAR, else 65.

    W and b are recovered from the training Trace (see `head.py`), so the layer must be the input of the last
    Linear; the paper also shapes feature maps before pooling. Values that tie with the smallest one kept are
    all kept, and a feature of zero stays zero in "B", where the authors' code picks among ties by position.
    Made for features that are never negative; `remedy_` says where they are.
    """

    metadata = Metadata(
        score="energy of the logits of the strongest features, pruned (P), made equal (B) or scaled (S)",
        fit="N * (d + C)**2",
        cost="N * d * C",
        state="4 * d * C",
        paper="Djurisic et al.",
        year=2023,
    )

    weight_: Tensor
    bias_: Tensor

    def __init__(self, *, layer: str = "penultimate", variant: str = "S", percentile: float = 90.0) -> None:
        if variant not in VARIANTS:
            raise InputError(f"expected variant to be one of {list(VARIANTS)}, got {variant!r}")
        self.layer = layer
        self.variant = variant
        self.percentile = checked_percentile(percentile)

    def _use(self, last: LastLayer) -> None:
        self.weight_, self.bias_ = last.weight.float().contiguous(), last.bias
        self.remedy_ = "; ".join(filter(None, [last.undetermined, last.negative("ASH")]))

    def _score(self, trace: Trace) -> Tensor:
        blocks = row_blocks(trace.layer(self.layer), _ROWS)
        logits = torch.cat([self._logits(rows.float()) for rows in blocks], dim=1)
        return -log_sum_exp(logits.T)

    def _logits(self, features: Tensor) -> Tensor:
        """(classes, rows), which is the faster way round where classes are few."""
        count = count_above(self.percentile, self.dimensions_[self.layer])
        kept = features >= top_values(features, count)[:, :1]
        # Zero times what is not finite is NaN, so that no broken feature is pruned in silence.
        rest = features * kept
        if self.variant == "B":
            rest = (rest != 0).float()
        logits = (self.weight_ @ rest.T).double()
        if self.variant != "P":
            ratio = ratio_of_sums(features, rest)
            logits = logits * (ratio if self.variant == "B" else ratio.exp())
        return logits + self.bias_[:, None]
