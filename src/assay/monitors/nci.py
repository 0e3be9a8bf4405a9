"""NCI: doubt features that do not point along the weights of their class (Liu and Qin 2025)."""

from collections.abc import Iterator

from torch import Tensor

from assay.errors import InputError
from assay.monitors.metadata import Metadata
from assay.monitors.monitor import Monitor
from assay.monitors.parts.gathered import Gathered
from assay.monitors.parts.row_blocks import in_blocks
from assay.monitors.parts.row_sums import absolute_sum, distance_from
from assay.monitors.parts.running_mean import RunningMean
from assay.trace import Trace


class NCI(Monitor):
    """s(x) = -w_y' (f(x) - mu) / ||f(x) - mu|| - norm_weight ||f(x)||_1, with y the predicted class, w_y its
    weights in the last layer and mu the mean feature (neural collapse inspired; Liu and Qin 2025).

    As logits are linear in f, w_y' (f(x) - mu) = l_y(x) - (mean of l_y), so the weights need not be known,
    and any number of rows will do. That holds where the layer is the input of the last Linear; this is not
    checked. The paper tunes `norm_weight` (its alpha) on data from outside; 0.0001 is OpenOOD's default.
    """

    metadata = Metadata(
        score="-w_y' (z - mean) / ‖z - mean‖ - norm_weight ‖z‖₁, w_y the weights of the predicted class",
        fit="N * (d + C)",
        cost="N * (d + C)",
        state="4 * d + 8 * C",
        paper="Liu and Qin",
        year=2025,
    )

    mean_: Tensor
    mean_logits_: Tensor

    def __init__(self, *, layer: str = "penultimate", norm_weight: float = 1e-4) -> None:
        if not norm_weight >= 0:
            raise InputError(f"expected a norm_weight of at least 0, got {norm_weight}")
        self.layer = layer
        self.norm_weight = norm_weight

    def _gather(self, traces: Iterator[Trace]) -> dict[str, Gathered]:
        features, logits = RunningMean(self.dimensions_[self.layer]), RunningMean(self.classes_)
        for rows, outputs in in_blocks((trace.layer(self.layer), trace.logits) for trace in traces):
            features.add(rows)
            logits.add(outputs)
        return {"features": features, "logits": logits}

    def _describe(self, features: RunningMean, logits: RunningMean) -> None:
        self.mean_, self.mean_logits_ = features.mean.float(), logits.mean

    def _score(self, trace: Trace) -> Tensor:
        features, predictions = trace.layer(self.layer), trace.predictions
        along = trace.logits.amax(dim=1).double() - self.mean_logits_[predictions]
        return -along / distance_from(self.mean_, features) - self.norm_weight * absolute_sum(features)
