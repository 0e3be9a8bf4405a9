"""ReAct: clip unusually large features before judging the output (Sun, Guo and Li 2021)."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from assay.errors import InputError
from assay.monitors.energy import Energy
from assay.monitors.metadata import Metadata
from assay.monitors.monitor import Monitor
from assay.monitors.parts.gathered import Gathered
from assay.monitors.parts.last_layer import LastLayerFit
from assay.monitors.parts.reservoir import Reservoir, checked_limit
from assay.monitors.parts.row_blocks import row_blocks
from assay.monitors.parts.row_keys import RowKeys
from assay.outputs import LOGITS
from assay.trace import Trace

_ROWS = 1024  # scored at a time: intermediate results stay in cache


class ReAct(Monitor):
    """s(x) of another monitor, Energy by default, on the logits W min(f(x), c) + b; Eq. 3 of Sun et al.

    c is the `percentile` of all training activations of the layer. W and b are recovered from the training
    Trace (see `head.py`), so the layer must be the input of the last Linear. The percentile, and the wrapped
    monitor, are fitted on a uniform sample of at most `limit` rows; None keeps every row until
    fitting is done.
    """

    metadata = Metadata(
        score="another monitor's, on the logits of clipped features",
        fit="N * (d + C)**2",
        cost="N * d * C",
        state="4 * d * C",
        paper="Sun, Guo and Li",
        year=2021,
    )

    weight_: Tensor
    bias_: Tensor
    ceiling_: float
    monitor_: Monitor

    def __init__(
        self,
        monitor: Monitor | None = None,
        *,
        layer: str = "penultimate",
        percentile: float = 90.0,
        limit: int | None = 10_000,
        seed: int = 0,
    ) -> None:
        if not 0 < percentile <= 100:
            raise InputError(f"expected a percentile above 0 and up to 100, got {percentile}")
        self.monitor = Energy() if monitor is None else monitor
        if self.monitor.layers or self.monitor.needs.inputs:
            raise InputError(
                f"expected a monitor that reads logits alone, got {self.monitor!r}; wrap Energy, MaxSoftmax "
                "or another output monitor"
            )
        self.layer = layer
        self.percentile = percentile
        self.limit = checked_limit(limit)
        self.seed = seed

    def _gather(self, traces: Iterator[Trace]) -> dict[str, Gathered]:
        kept = Reservoir(self.limit)
        sampled = self._sampling(traces, kept)
        fit = LastLayerFit.of(sampled, self.layer, self.dimensions_[self.layer], self.classes_)
        return {"fit": fit, "kept": kept}

    def _describe(self, fit: LastLayerFit, kept: Reservoir) -> None:
        last, rows = fit.last_layer(), kept.rows()
        self.ceiling_ = float(np.percentile(rows.numpy(), self.percentile))
        self.weight_, self.bias_ = last.weight.float().contiguous(), last.bias
        self.remedy_ = last.undetermined
        self.monitor_ = type(self.monitor).from_state({**self.monitor.state(), "fitted": {}})
        self.monitor_.fit(self._rectified(rows))

    def _sampling(self, traces: Iterator[Trace], kept: Reservoir) -> Iterator[Trace]:
        keys = RowKeys(self.seed)
        for trace in traces:
            kept.add(keys.next(trace.logits), trace.layer(self.layer))
            yield trace

    def _score(self, trace: Trace) -> Tensor:
        return self.monitor_.score(self._rectified(trace.layer(self.layer)))

    def _rectified(self, features: Tensor) -> Trace:
        """The logits of clipped features; made as (classes, rows), the faster way round for few classes."""
        blocks = row_blocks(features, _ROWS)
        logits = torch.cat([self.weight_ @ rows.float().clamp(max=self.ceiling_).T for rows in blocks], dim=1)
        if not torch.isfinite(features.sum()):
            # Clipping would turn an infinite feature into an ordinary one.
            logits[:, ~torch.isfinite(features).all(dim=1)] = torch.nan
        return Trace((logits.double() + self.bias_[:, None]).T, outputs=LOGITS)
