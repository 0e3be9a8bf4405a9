"""ActivationBox: doubt what falls outside the boxes its class was seen in (Henzinger et al. 2020)."""

from collections.abc import Iterator, Sequence
from itertools import chain

import torch
from torch import Tensor

from assay.errors import InputError
from assay.monitors.metadata import Labels, Metadata, Needs
from assay.monitors.monitor import Monitor
from assay.monitors.parts.class_rows import UNSEEN, ClassSample, unseen_remedy
from assay.monitors.parts.clusters import ELBOW, assigned
from assay.monitors.parts.gathered import Gathered
from assay.monitors.parts.projection import (
    GEODESIC,
    KINDS,
    PRINCIPAL,
    SIMPLE,
    chosen_neurons,
    geodesic,
    principal,
    projected,
)
from assay.monitors.parts.reservoir import checked_limit
from assay.monitors.parts.row_blocks import row_blocks
from assay.trace import Trace

BLOCK = 1024
"""Rows scored at a time, which bounds memory."""

ROUNDING = 1e-5
"""Of a neuron's range: how far every box is widened, since the batch size moves features by rounding."""

FLAT = 1e-2
"""Of a neuron's range: the least width a box is measured in, where all its points agree."""


class ActivationBox(Monitor):
    """s(x) = min over boxes b of the predicted class of max_j (|z_j - c_bj| - (1 + gamma) h_bj)^+ / w_bj.

    Outside the Box (Henzinger, Lukina, Schilling 2020), as the safety-monitor benchmark uses it. Per class,
    k-means splits the features; every cluster gets the box of its least and largest values, with centre c,
    half-width h and width w, enlarged by gamma around its centre. The paper's rule, alarm outside all
    boxes, is the threshold 0; beyond it the score says how many widths outside.

    clusters: per class, or "elbow". neurons: those to watch, None for all. projection: None for boxes over
    all watched neurons; "simple" for two given neurons, "pca" or "isomap" for two dimensions, fitted once on
    all classes together (the benchmark does not say whether it fits per class). Isomap keeps `landmarks`
    points.

    Rows count for their predicted class; where labels are known, misclassified rows are left out. Boxes come
    from at most `limit` rows per class. A class without rows gets the score UNSEEN, the largest, and
    `remedy_` names it. A box that is flat in a neuron (one row, constant feature) is measured in hundredths
    of that neuron's range over all classes. Isomap adds O(landmarks * d) to the cost of a score.
    """

    metadata = Metadata(
        score="widths outside the nearest box of the predicted class",
        needs=Needs(labels=Labels.OPTIONAL),
        fit="N * d * clusters",
        cost="N * d * clusters",
        state="12 * C * d * clusters",
        paper="Henzinger, Lukina and Schilling",
        year=2020,
    )

    def __init__(
        self,
        *,
        layer: str = "penultimate",
        clusters: int | str = 3,
        projection: str | None = None,
        gamma: float = 0.1,
        neurons: Sequence[int] | None = None,
        limit: int | None = 5000,
        landmarks: int = 500,
        neighbours: int = 5,
        seed: int = 0,
    ) -> None:
        if clusters != ELBOW and not (isinstance(clusters, int) and clusters >= 1):
            raise InputError(f"expected clusters to be at least 1 or {ELBOW!r}, got {clusters!r}")
        if projection not in KINDS:
            raise InputError(f"expected projection to be one of {list(KINDS)}, got {projection!r}")
        if not gamma >= 0:
            raise InputError(f"expected gamma of at least 0, got {gamma}")
        _check_neurons(neurons, projection)
        self.layer = layer
        self.clusters = clusters
        self.projection = projection
        self.gamma = gamma
        self.neurons = neurons
        self.limit = checked_limit(limit)
        self.landmarks = landmarks
        self.neighbours = neighbours
        self.seed = seed

    projection_: list[dict[str, Tensor]]
    seen_: Tensor
    centres_: Tensor
    reach_: Tensor
    widths_: Tensor

    def _gather(self, traces: Iterator[Trace]) -> dict[str, Gathered]:
        return {"sample": ClassSample.of(traces, self.layer, self.limit, self.seed)}

    def _describe(self, sample: ClassSample) -> None:
        features = sample.rows()
        self.projection_ = self._projection(list(features.values()))
        self._keep_boxes({label: self._boxes(self._projected(rows)) for label, rows in features.items()})

    def _score(self, trace: Trace) -> Tensor:
        parts = row_blocks(trace.layer(self.layer), BLOCK), row_blocks(trace.predictions, BLOCK)
        scores = [self._outside(self._projected(rows), classes) for rows, classes in zip(*parts, strict=True)]
        return torch.cat(scores) if scores else torch.empty(0)

    def _projection(self, parts: list[Tensor]) -> list[dict[str, Tensor]]:
        steps = [] if self.neurons is None else [chosen_neurons(self.neurons, parts[0].shape[1])]
        if self.projection not in (PRINCIPAL, GEODESIC):
            return steps
        watched = torch.cat([projected(steps[0], rows) if steps else rows for rows in parts])
        if self.projection == PRINCIPAL:
            return [*steps, principal(watched)]
        return [*steps, geodesic(watched, self.landmarks, self.neighbours, self.seed)]

    def _projected(self, rows: Tensor) -> Tensor:
        for step in self.projection_:
            rows = projected(step, rows)
        return rows

    def _boxes(self, points: Tensor) -> list[tuple[Tensor, Tensor]]:
        """(lowest, highest) of each cluster."""
        clusters = assigned(points, self.clusters, self.seed)
        members = [points[clusters == number] for number in torch.unique(clusters)]
        return [(rows.amin(dim=0), rows.amax(dim=0)) for rows in members]

    def _keep_boxes(self, boxes: dict[int, list[tuple[Tensor, Tensor]]]) -> None:
        """As tensors (classes, boxes, dimensions); a class with fewer boxes repeats its first."""
        most, spans = max(map(len, boxes.values())), _range(boxes)
        low, high = (torch.zeros(self.classes_, most, len(spans), dtype=spans.dtype) for _ in range(2))
        for label, found in boxes.items():
            padded = found + found[:1] * (most - len(found))
            low[label] = torch.stack([lowest for lowest, _ in padded])
            high[label] = torch.stack([highest for _, highest in padded])
        self.seen_ = torch.tensor([label in boxes for label in range(self.classes_)])
        self.remedy_ = unseen_remedy(boxes, self.classes_)
        self.centres_ = (low + high) / 2
        self.reach_ = (1 + self.gamma) * (high - low) / 2 + ROUNDING * spans
        self.widths_ = torch.maximum(high - low, FLAT * spans)

    def _outside(self, points: Tensor, classes: Tensor) -> Tensor:
        distances = (points[:, None] - self.centres_[classes]).abs_()
        excess = distances.sub_(self.reach_[classes]).div_(self.widths_[classes])
        scores = excess.amax(dim=2).amin(dim=1).clamp(min=0, max=UNSEEN)
        return torch.where(self.seen_[classes], scores, UNSEEN) if self.remedy_ else scores


def _range(boxes: dict[int, list[tuple[Tensor, Tensor]]]) -> Tensor:
    """Largest less least value of each dimension; where that is nothing, the average of the others, or 1."""
    low, high = (torch.stack(ends) for ends in zip(*chain(*boxes.values()), strict=True))
    spans = high.amax(dim=0) - low.amin(dim=0)
    moving = spans[spans > 0]
    return torch.where(spans > 0, spans, moving.mean() if len(moving) else torch.ones_like(spans))


def _check_neurons(neurons: Sequence[int] | None, projection: str | None) -> None:
    if neurons is not None and (not len(neurons) or min(neurons) < 0):
        raise InputError(f"expected neurons as indices of at least 0, got {neurons}")
    if projection == SIMPLE and (neurons is None or len(neurons) != 2):
        raise InputError(
            f"expected two neurons for projection='simple', got {neurons}; pass for example neurons=(0, 1)"
        )
