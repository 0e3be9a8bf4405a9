"""GaussianInterval: count the neurons outside their class's usual range (Hashemi et al. 2021)."""

from collections.abc import Iterator

import torch
from torch import Tensor

from assay.errors import InputError
from assay.monitors.metadata import Labels, Metadata, Needs
from assay.monitors.monitor import Monitor
from assay.monitors.parts.class_rows import UNSEEN, no_class, teaching, unseen_remedy
from assay.monitors.parts.gathered import Gathered
from assay.monitors.parts.row_blocks import in_blocks, row_blocks
from assay.trace import Trace

FLAT = 1e-2
"""Of a neuron's spread over all classes: the least it is given within one class."""

BLOCK = 256
"""Rows scored at a time: few enough to stay in the cache."""

MEASURES = ("share", "excess")


class NeuronSpread(Gathered):
    """Counts (classes, 1), sums and sums of squares (classes, d), about the first row, which keeps squares of
    far-off features from swallowing their spread."""

    def __init__(self, classes: int, size: int) -> None:
        self.counts = torch.zeros(classes, 1, dtype=torch.float64)
        self.shift = torch.zeros(size, dtype=torch.float64)
        self.totals, self.squares = (torch.zeros(classes, size, dtype=torch.float64) for _ in range(2))

    def add(self, features: Tensor, classes: Tensor) -> None:
        if len(features) and not self.counts.any():
            self.shift = features[0].double()
        centred = features.double() - self.shift
        self.counts.index_add_(0, classes, torch.ones(len(classes), 1, dtype=torch.float64))
        self.totals.index_add_(0, classes, centred)
        self.squares.index_add_(0, classes, centred.square())

    def merge(self, other: "NeuronSpread") -> None:
        if not self.counts.any():
            self.shift = other.shift.clone()
        step = other.shift - self.shift
        self.squares += other.squares + 2 * step * other.totals + step.square() * other.counts
        self.totals += other.totals + step * other.counts
        self.counts += other.counts


class GaussianInterval(Monitor):
    """s(x) = share of neurons j with |z_j - mu_cj| > k sigma_cj, c the predicted class.

    Gaussian-based runtime detection (Hashemi, Křetínský, Mohr, Seferis 2021): means and standard deviations
    per class and neuron, and a vote of the neurons outside their interval. measure="excess" grades it:
    mean over j of (|z_j - mu_cj| / sigma_cj - k)^+.

    From streamed sums, so fitting needs no sample: O(classes * d) memory. Rows count for their predicted
    class; where labels are known, misclassified rows are left out. A neuron that is constant within a class
    is given a hundredth of its spread over all classes; a class with one row, the whole of it. A class
    without rows gets the largest score, 1 or for "excess" UNSEEN, and `remedy_` names it.
    """

    metadata = Metadata(
        score="share of neurons outside mean ± k deviations of the predicted class",
        needs=Needs(labels=Labels.OPTIONAL),
        fit="N * d",
        cost="N * d",
        state="16 * C * d",
        paper="Hashemi et al.",
        year=2021,
    )

    def __init__(self, *, layer: str = "penultimate", k: float = 2.0, measure: str = "share") -> None:
        if not k > 0:
            raise InputError(f"expected k above 0 standard deviations, got {k}")
        if measure not in MEASURES:
            raise InputError(f"expected measure to be one of {list(MEASURES)}, got {measure!r}")
        self.layer = layer
        self.k = k
        self.measure = measure

    seen_: Tensor
    means_: Tensor
    deviations_: Tensor

    def _gather(self, traces: Iterator[Trace]) -> dict[str, Gathered]:
        spread = NeuronSpread(self.classes_, self.dimensions_[self.layer])
        for features, classes in in_blocks(self._teaching_rows(trace) for trace in traces):
            spread.add(features, classes)
        return {"found": spread}

    def _describe(self, found: "NeuronSpread") -> None:
        counts, totals, squares, shift = found.counts, found.totals, found.squares, found.shift
        if not counts.any():
            raise no_class()
        everything = _deviation(counts.sum(0, keepdim=True), totals.sum(0, keepdim=True), squares.sum(0))
        spread = _positive(everything[0])
        within = torch.where(counts > 1, _deviation(counts, totals, squares), spread)
        self.seen_ = counts[:, 0] > 0
        self.means_ = torch.where(counts > 0, shift + totals / counts.clamp(min=1), 0.0)
        self.deviations_ = torch.maximum(within, FLAT * spread)
        self.remedy_ = unseen_remedy(self.seen_.nonzero()[:, 0].tolist(), self.classes_)

    def _score(self, trace: Trace) -> Tensor:
        parts = row_blocks(trace.layer(self.layer), BLOCK), row_blocks(trace.predictions, BLOCK)
        scores = [self._outside(rows.double(), classes) for rows, classes in zip(*parts, strict=True)]
        return torch.cat(scores) if scores else torch.empty(0)

    def _teaching_rows(self, trace: Trace) -> tuple[Tensor, Tensor]:
        rows = teaching(trace)
        return trace.layer(self.layer)[rows], trace.predictions[rows]

    def _outside(self, rows: Tensor, classes: Tensor) -> Tensor:
        distances = (rows - self.means_[classes]).abs_() / self.deviations_[classes]
        if self.measure == "excess":
            scores, worst = (distances - self.k).clamp(min=0).mean(dim=1).clamp(max=UNSEEN), UNSEEN
        else:
            # NaN compares false, which would pass for inside.
            finite = torch.isfinite(distances).all(dim=1)
            scores, worst = torch.where(finite, (distances > self.k).double().mean(dim=1), torch.nan), 1.0
        return torch.where(self.seen_[classes], scores, worst)


def _deviation(counts: Tensor, totals: Tensor, squares: Tensor) -> Tensor:
    """Standard deviations from counts and sums (divided by n - 1)."""
    variance = (squares - totals**2 / counts.clamp(min=1)) / (counts - 1).clamp(min=1)
    return variance.clamp(min=0).sqrt()


def _positive(spread: Tensor) -> Tensor:
    """A neuron constant everywhere takes the average spread of the others, or 1 where there are none."""
    moving = spread[spread > 0]
    return torch.where(spread > 0, spread, moving.mean() if len(moving) else torch.ones_like(spread))
