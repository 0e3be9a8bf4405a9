"""AccuracyWindows: a stream of predictions in, an answer about its accuracy after every full window."""

import torch

from assay.accuracy.counts import PredictionCounts
from assay.accuracy.estimator import AccuracyEstimator
from assay.accuracy.result import AccuracyEstimates
from assay.errors import InputError
from assay.operation.accuracy_history import AccuracyHistory
from assay.outputs import LOGITS
from assay.statistics import check_level
from assay.trace import Trace


class AccuracyWindows:
    """Cuts a stream into windows of so many rows and asks a fitted estimator about each.

    Rows that are not finite are left out: they say nothing, and a guard raises the alarm on them. Of a window
    that is not full yet, it holds the logits, the layer that the estimator reads, and inputs if the Traces
    have any: with them, frozen and saturated inputs are seen.
    """

    def __init__(self, estimator: AccuracyEstimator, window: int, level: float = 0.95) -> None:
        estimator.expect_fitted()
        check_level(level)
        if window < 1:
            raise InputError(f"expected a window of at least 1 row, got {window}")
        self.estimator = estimator
        self.window = window
        self.level = level
        self.history = AccuracyHistory(estimator.reference_accuracy_)
        self.estimates: AccuracyEstimates | None = None
        """Of the last full window."""
        self.counts: PredictionCounts | None = None
        """Over all full windows."""
        self._waiting: list[Trace] = []
        self._waiting_rows = 0

    @property
    def waiting_rows(self) -> int:
        """Rows after the last full window."""
        return self._waiting_rows

    def update(self, trace: Trace) -> None:
        """Add rows, in order; with the features of the estimator's layers."""
        read = {layer: trace.layer(layer) for layer in self.estimator.layers}
        finite = torch.stack([torch.isfinite(rows).all(dim=1) for rows in (trace.logits, *read.values())])
        inputs = trace.inputs if trace.source is None else None
        if self._waiting and (self._waiting[0].inputs is None) != (inputs is None):
            raise InputError(
                "expected Traces that all have inputs, or none that has, got both; observe the whole stream "
                "with keep_inputs=True, or without"
            )
        needed = Trace(trace.logits, read, inputs=inputs, outputs=LOGITS)
        self._waiting.append(needed[finite.all(dim=0)])
        self._waiting_rows += len(self._waiting[-1])
        if self._waiting_rows < self.window:
            return
        rows = Trace.concatenate(self._waiting)
        full = len(rows) - len(rows) % self.window
        for start in range(0, full, self.window):
            self._ask(rows[start : start + self.window])
        self._waiting, self._waiting_rows = [rows[full:]], len(rows) - full

    def _ask(self, rows: Trace) -> None:
        counts = self.estimator.count(rows)
        self.estimates = self.estimator.estimate(counts, self.level)
        self.history = self.history.extended(self.estimates)
        self.counts = counts if self.counts is None else self.counts + counts
