"""ActivationPattern: doubt an on/off pattern of neurons never seen with its class (Cheng et al. 2019)."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.monitors.metadata import Labels, Metadata, Needs
from assay.monitors.monitor import Monitor
from assay.monitors.parts.class_rows import ClassSample, some_class, teaching, unseen_remedy
from assay.monitors.parts.gathered import Gathered
from assay.monitors.parts.nearest import fewest_differences
from assay.monitors.parts.reservoir import checked_limit
from assay.network import all_finite
from assay.trace import Trace

WORD = 64

Words = NDArray[np.uint64]


class PatternSets(Gathered):
    """The different patterns of every class, as whole numbers of 64 bits."""

    repeatable = True

    def __init__(self) -> None:
        self.patterns: dict[int, Tensor] = {}

    def add(self, packed: Words, classes: NDArray[np.int64]) -> None:
        for label in np.unique(classes).tolist():
            self._add(label, torch.from_numpy(packed[classes == label].view(np.int64)))

    def merge(self, other: "PatternSets") -> None:
        for label, patterns in other.patterns.items():
            self._add(label, patterns)

    def _add(self, label: int, found: Tensor) -> None:
        known = self.patterns.get(label)
        every = (found if known is None else torch.cat([known, found])).numpy().view(np.uint64)
        self.patterns[label] = torch.from_numpy(np.unique(every, axis=0).view(np.int64))


class ActivationPattern(Monitor):
    """s(x) = min over patterns p stored for the predicted class of Hamming([z > on_above], p).

    Runtime monitoring of neuron activation patterns (Cheng, Nührenberg, Yasuoka 2019). Their comfort zone
    of radius gamma is the score's threshold. They keep the set in a binary decision diagram; here unique
    patterns are kept as bits and compared by exclusive or and a count of ones, which gives the distance
    itself instead of one yes or no per radius.

    Rows count for their predicted class; where labels are known, misclassified rows are left out. With
    `limit`, at most that many rows per class, sampled uniformly, count. A class without rows scores one more
    than there are neurons, and `remedy_` names it.

    >>> features = torch.tensor([[1.0, 0.0, 2.0], [0.5, 0.0, 3.0], [0.0, 9.0, 0.0]])
    >>> trace = Trace(torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]), {"penultimate": features})
    >>> ActivationPattern().fit(trace[:2]).score(trace).tolist()
    [0.0, 0.0, 3.0]
    """

    metadata = Metadata(
        score="Hamming distance of the on/off pattern to the nearest one of the predicted class",
        needs=Needs(labels=Labels.OPTIONAL),
        fit="N * d",
        cost="N * M * d / 64",
        state="M * d / 8",
        paper="Cheng, Nührenberg and Yasuoka",
        year=2019,
    )

    def __init__(
        self,
        *,
        layer: str = "penultimate",
        on_above: float = 0.0,
        limit: int | None = None,
        seed: int = 0,
    ) -> None:
        self.layer = layer
        self.on_above = on_above
        self.limit = checked_limit(limit)
        self.seed = seed

    patterns_: dict[int, Tensor]

    def _gather(self, traces: Iterator[Trace]) -> dict[str, Gathered]:
        if self.limit is not None:
            return {"sample": ClassSample.of(traces, self.layer, self.limit, self.seed)}
        known = PatternSets()
        for trace in traces:
            rows = teaching(trace)
            known.add(self._packed(trace.layer(self.layer)[rows]), trace.predictions[rows].numpy())
        return {"known": known}

    def _describe(self, sample: ClassSample | None = None, known: PatternSets | None = None) -> None:
        if known is None:
            assert sample is not None
            known = PatternSets()
            for label, rows in sample.rows().items():
                known.add(self._packed(rows), np.full(len(rows), label))
        some_class(known.patterns)
        self.patterns_ = dict(sorted(known.patterns.items()))
        self.remedy_ = unseen_remedy(self.patterns_, self.classes_)

    def _score(self, trace: Trace) -> Tensor:
        features, classes = trace.layer(self.layer), trace.predictions.numpy()
        patterns = self._packed(features)
        scores = torch.full((len(trace),), features.shape[1] + 1.0)
        for label in np.unique(classes).tolist():
            if label in self.patterns_:
                rows = np.flatnonzero(classes == label)
                stored = self.patterns_[label].numpy().view(np.uint64)
                scores[rows] = torch.from_numpy(fewest_differences(patterns[rows], stored)).float()
        if all_finite(features):
            return scores
        # A comparison with NaN is "off", which would pass for a pattern.
        return torch.where(torch.isfinite(features).all(dim=1), scores, torch.nan)

    def _traced_score(self, trace: Trace) -> Tensor:
        """|a| + |p| - 2 a'p over all stored patterns p, those of other classes put out of reach."""
        features, width = trace.layer(self.layer), self.dimensions_[self.layer]
        patterns = torch.cat([_unpacked(rows, width) for rows in self.patterns_.values()])
        owners = torch.cat([torch.full((len(rows),), label) for label, rows in self.patterns_.items()])
        foreign = 2.0 * width * (torch.arange(self.classes_)[:, None] != owners)
        on = (features > self.on_above).float()
        apart = on.sum(dim=1, keepdim=True) + patterns.sum(dim=1) - 2 * on @ patterns.T
        return (apart + foreign[trace.predictions]).amin(dim=1).clamp(max=width + 1)

    def _packed(self, features: Tensor) -> Words:
        """A bit per neuron, in as many 64-bit words as it takes."""
        on = (features > self.on_above).numpy()
        words = -(-on.shape[1] // WORD)
        octets = np.zeros((len(on), words * WORD // 8), np.uint8)
        octets[:, : -(-on.shape[1] // 8)] = np.packbits(on, axis=1)
        return octets.view(np.uint64)


def _unpacked(patterns: Tensor, width: int) -> Tensor:
    """(patterns, width): the bits as numbers."""
    octets = patterns.numpy().view(np.uint8)
    return torch.from_numpy(np.unpackbits(octets, axis=1)[:, :width]).float()
