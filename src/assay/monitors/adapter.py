"""Detectors of other libraries as monitors, by pytorch-ood's feature interface; nothing of it is imported."""

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.errors import InputError
from assay.monitors.metadata import Labels, Metadata, Needs
from assay.monitors.parts.class_rows import fitting_classes
from assay.monitors.parts.reservoir import checked_limit
from assay.monitors.parts.row_keys import RowKeys
from assay.monitors.parts.row_sample import TraceSample
from assay.monitors.parts.user_code import _UserCode, one_score_per_row
from assay.outputs import LOGITS
from assay.trace import Trace

READS = ("features", "logits")


class Adapter(_UserCode):
    """s(x) = detector.predict_features(z), z the features of a layer or the logits."""

    metadata = Metadata(
        score="what a detector of another library says",
        needs=Needs(labels=Labels.OPTIONAL, user_code=True),
        cost="",
        unmergeable="a detector of another library learns in its own way",
    )

    code = "detector"
    instead = "a detector of another library is code: fit it again and call adapt(detector) after loading"

    def __init__(
        self,
        detector: Any,
        *,
        reads: str = "features",
        layer: str = "penultimate",
        limit: int | None = None,
        seed: int = 0,
        name: str | None = None,
    ) -> None:
        if not callable(getattr(detector, "predict_features", None)):
            raise InputError(
                f"expected a detector with predict_features(z), got {type(detector).__name__}; "
                "wrap it in an object that has this method"
            )
        if reads not in READS:
            raise InputError(f"expected reads to be one of {list(READS)}, got {reads!r}")
        self.detector = detector
        self.reads = reads
        self.layer = layer
        self.limit = checked_limit(limit)
        self.seed = seed
        self.name = name

    @property
    def layers(self) -> tuple[str, ...]:
        return (self.layer,) if self.reads == "features" else ()

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors and arrays that are attributes of the detector."""
        return sum(int(value.nbytes) for value in self._learned().values())

    def _learned(self) -> dict[str, Any]:
        kept = vars(self.detector) if hasattr(self.detector, "__dict__") else {}
        return {name: value for name, value in kept.items() if isinstance(value, Tensor | np.ndarray)}

    def _fit(self, traces: Iterator[Trace]) -> None:
        rows = (self._labelled(trace) for trace in traces)
        kept = Trace.concatenate(rows) if self.limit is None else self._sampled(rows)
        if callable(getattr(self.detector, "fit_features", None)):
            self.detector.fit_features(self._read(kept), kept.known_labels)

    def _labelled(self, trace: Trace) -> Trace:
        features = {layer: trace.layer(layer) for layer in self.layers}
        return Trace(trace.logits, features, fitting_classes(trace), outputs=LOGITS)

    def _sampled(self, traces: Iterator[Trace]) -> Trace:
        sample, keys = TraceSample(self.limit), RowKeys(self.seed)
        for trace in traces:
            sample.add(trace, keys.next(trace.logits))
        return sample.trace()

    def _score(self, trace: Trace) -> Tensor:
        with torch.no_grad():
            answer = self.detector.predict_features(self._read(trace))
        return one_score_per_row(answer, trace, f"{type(self.detector).__name__}.predict_features")

    def _read(self, trace: Trace) -> Tensor:
        """A copy, so that a detector that works in place leaves the Trace alone."""
        return (trace.layer(self.layer) if self.reads == "features" else trace.logits).clone()


def adapt(detector: Any, **settings: Any) -> Adapter:
    """A monitor out of any object with `predict_features(z)` and, where it learns, `fit_features(z, y)`.

    That is pytorch-ood's interface: z of shape (N, d), y one class per row, scores that are higher for
    outliers. `reads` says what z is: the features of `layer`, or "logits". Classes are the labels, or the
    predictions where there are none. The detector is fitted in place, on all rows at once or on at most
    `limit` of them. It cannot be saved, since assay writes no pickles; saved results identify it by `name`.
    """
    return Adapter(detector, **settings)


adapt.__signature__ = inspect.signature(Adapter)  # type: ignore[attr-defined]  # stated once, in the class
