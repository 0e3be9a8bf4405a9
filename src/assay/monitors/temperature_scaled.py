"""TemperatureScaled: a monitor over calibrated logits (Guo et al. 2017)."""

import math
from collections.abc import Iterator
from dataclasses import replace

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from assay.errors import InputError
from assay.monitors.max_softmax import MaxSoftmax
from assay.monitors.metadata import Labels, Metadata, Needs
from assay.monitors.monitor import Monitor
from assay.monitors.parts.class_rows import fitting_classes
from assay.monitors.parts.gathered import Gathered
from assay.monitors.parts.reservoir import checked_limit
from assay.monitors.parts.row_keys import RowKeys
from assay.monitors.parts.row_sample import TraceSample
from assay.outputs import LOGITS
from assay.trace import Trace

COLDEST, HOTTEST = 1e-2, 1e2


class TemperatureScaled(Monitor):
    """s(x) = s_inner(f(x) / T), T minimising the negative log-likelihood of the labels.

    On calibration of modern neural networks (Guo, Pleiss, Sun, Weinberger 2017). T lies in [0.01, 100]:
    where every row is classified right, the likelihood alone would drive it to 0. Fit needs labels, and data
    the network was not trained on, or T means little. T and the inner monitor, which is fitted in
    place, learn from the same at most `limit` rows, since the inner one needs the logits after scaling.
    Monitors that run the network themselves (ODIN, dropout, ensembles) do not see the scaled logits.
    """

    metadata = Metadata(
        score="another monitor's, on calibrated logits",
        needs=Needs(labels=Labels.REQUIRED),
        fit="M * C",
        state="8",
        paper="Guo et al.",
        year=2017,
    )

    def __init__(self, monitor: Monitor | None = None, *, limit: int | None = 20_000, seed: int = 0) -> None:
        monitor = MaxSoftmax() if monitor is None else monitor
        if not isinstance(monitor, Monitor):
            raise InputError(f"expected a monitor to scale logits for, got {type(monitor).__name__}")
        self.monitor = monitor
        self.limit = checked_limit(limit)
        self.seed = seed

    temperature_: float

    @property
    def layers(self) -> tuple[str, ...]:
        return self.monitor.layers

    @property
    def needs(self) -> Needs:
        return self.metadata.needs | self.monitor.needs

    @property
    def obstacle(self) -> str:
        return self.monitor.obstacle

    @property
    def nbytes(self) -> int:
        return super().nbytes + self.monitor.nbytes

    def _gather(self, traces: Iterator[Trace]) -> dict[str, Gathered]:
        sample, keys = TraceSample(self.limit), RowKeys(self.seed)
        for trace in traces:
            fitting_classes(trace)  # refuses labels of other classes
            sample.add(self._needed_of(trace), keys.next(trace.logits))
        return {"sample": sample}

    def _describe(self, sample: TraceSample) -> None:
        kept = sample.trace()
        self.temperature_ = best_temperature(kept.logits.double(), kept.known_labels)
        self.monitor.fit(self._scaled(kept))
        self.remedy_ = self.monitor.remedy_

    def _score(self, trace: Trace) -> Tensor:
        return self.monitor.score(self._scaled(trace))

    def _scaled(self, trace: Trace) -> Trace:
        return replace(trace, logits=trace.logits / self.temperature_, outputs=LOGITS)


def best_temperature(logits: Tensor, labels: Tensor) -> float:
    """The temperature that minimises the negative log-likelihood of the labels; in [0.01, 100]."""

    def negative_log_likelihood(log_temperature: float) -> float:
        return float(torch.nn.functional.cross_entropy(logits / math.exp(log_temperature), labels))

    bounds = math.log(COLDEST), math.log(HOTTEST)
    found = minimize_scalar(negative_log_likelihood, bounds=bounds, method="bounded", options={"xatol": 1e-6})
    return math.exp(float(found.x))
