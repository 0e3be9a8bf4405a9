"""SetCounter: from a Trace to the sums of all its rows, or of chosen ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from assay.accuracy.row_signals import FEATURES, RowSignals
from assay.accuracy.set_sums import SetSums
from assay.errors import InputError
from assay.storage import storable
from assay.trace import Trace
from assay.volatility.certainty import Doubles

DOUBT_BINS = 6
"""Bins per signal of a cell of doubt: margin of the logits and both distances, or what there is of them."""
CONFIDENCE_CUTS = (0.15, 0.4)
DISTANCE_CUTS = (0.6, 0.9)
"""Quantiles of the reference that bound the cells within a predicted class."""

POSITIONS = 256
"""Positions of an input that are looked at, drawn once: enough to see what is frozen or saturated."""
MOVING = 0.1
"""Share of reference rows in which a position has an unusual value, at the least, to be looked at: the border
of a digit, nearly always black, would else seem frozen in any small set."""

POSITIONS_AT_ONCE = 4096
"""Positions whose values are copied as doubles together: all of them would be twice a dataset of images."""

Whole = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class CountedRows:
    """The rows of a Trace, prepared so that any part of them can be summed."""

    probabilities: Doubles
    predictions: Whole
    scores: Doubles
    above: Doubles
    expected: Doubles
    doubts: Whole
    cells: Whole
    repeated: Doubles
    inputs: Doubles | None

    def __len__(self) -> int:
        return len(self.predictions)


@storable("accuracy.SetCounter")
class SetCounter:
    """Counts what `SetSums` contain; all its bins and cuts are those of the reference.

    Given to every device. It costs a few microseconds per row: a softmax, two distances to at most 500 rows,
    and sums.
    """

    def __init__(self) -> None:
        self.signals_ = RowSignals(None)
        self.classes_ = 0
        self.cut_ = 0.0
        self.calibration_ = np.zeros((2, 1))
        self.doubt_edges_: dict[int, Doubles] = {}
        self.confidence_edges_ = np.zeros(0)
        self.distance_edges_ = np.zeros(0)
        self.positions_ = torch.zeros(0, dtype=torch.long)
        self.range_ = -np.inf, np.inf

    @classmethod
    def fitted(cls, reference: Trace, *, seed: int = 0) -> Self:
        """Fitted on a labelled Trace: its distances are to the first half of a random split of it."""
        from sklearn.isotonic import IsotonicRegression

        counter = cls()
        first, second = halves(len(reference), seed)
        counter.signals_ = RowSignals.fitted(reference[first], seed=seed)
        counter.classes_ = reference.logits.shape[1]
        confidence = reference.probabilities.amax(dim=1).numpy()
        correct = reference.correct.numpy()
        counter.cut_ = float(np.quantile(confidence, 1 - correct.mean()))
        fitted = IsotonicRegression(out_of_bounds="clip").fit(confidence, correct)
        counter.calibration_ = np.stack([fitted.X_thresholds_, fitted.y_thresholds_])
        counter.confidence_edges_ = np.quantile(confidence, CONFIDENCE_CUTS)
        if FEATURES[0] in counter.signals_.names:
            distances = counter.signals_.of(reference[second])[:, counter._place(FEATURES[0])]
            counter.distance_edges_ = np.quantile(distances, DISTANCE_CUTS)
        flat = _flat(reference.inputs)
        if flat is not None:
            counter.positions_ = _moving_positions(flat, seed)
            counter.range_ = float(flat.min()), float(flat.max())
        return counter

    def set_doubt_edges(self, scores: Doubles) -> None:
        """Bins of doubt with equally many of these row signals in each: those of all lessons together."""
        names = ("logit margin", *(FEATURES if FEATURES[0] in self.signals_.names else ("energy",)))
        inner = np.linspace(0, 1, DOUBT_BINS + 1)[1:-1]
        places = [self._place(name) for name in names]
        self.doubt_edges_ = {place: np.quantile(scores[:, place], inner) for place in places}

    def rows(self, trace: Trace, signals: Doubles | None = None) -> CountedRows:
        """Everything about the rows that sums are made of; `signals` where they are known already."""
        scores = self.signals_.of(trace) if signals is None else signals
        probabilities = trace.probabilities.numpy()
        confidence = probabilities.max(axis=1)
        predictions = probabilities.argmax(axis=1)
        return CountedRows(
            probabilities,
            predictions,
            scores,
            (confidence > self.cut_).astype(float),
            np.interp(confidence, *self.calibration_),
            self._doubt_cells(scores),
            self._cells(predictions, confidence, scores),
            _repeated(trace.logits),
            self._looked_at(trace.inputs),
        )

    def sums(self, rows: CountedRows, places: Whole | slice = slice(None)) -> SetSums:
        """The sums over the rows at these places, in any number and order."""
        probabilities = rows.probabilities[places]
        inputs = np.zeros((0, 0)) if rows.inputs is None else rows.inputs[places]
        return SetSums(
            len(probabilities),
            rows.scores[places].sum(axis=0),
            probabilities.T @ probabilities,
            np.bincount(rows.predictions[places], minlength=self.classes_).astype(float),
            float(rows.above[places].sum()),
            float(rows.expected[places].sum()),
            np.bincount(rows.doubts[places], minlength=self.doubt_cells).astype(float),
            np.bincount(rows.cells[places], minlength=self.class_cells).astype(float),
            int(rows.repeated[places].sum()),
            inputs.size,
            int(((inputs <= self.range_[0]) | (inputs >= self.range_[1])).sum()),
            inputs.min(axis=0) if inputs.size else np.zeros(0),
            inputs.max(axis=0) if inputs.size else np.zeros(0),
        )

    @property
    def doubt_cells(self) -> int:
        return int(DOUBT_BINS ** len(self.doubt_edges_))

    @property
    def class_cells(self) -> int:
        return self.classes_ * self._bins

    @property
    def _bins(self) -> int:
        return (len(self.confidence_edges_) + 1) * (len(self.distance_edges_) + 1)

    def state(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        counter = cls()
        vars(counter).update(state)
        return counter

    def _looked_at(self, inputs: Any) -> Doubles | None:
        """The inputs at the positions that are looked at."""
        flat = _flat(inputs)
        if flat is None or not len(self.positions_):
            return None
        if flat.shape[1] <= int(self.positions_[-1]):
            raise InputError(
                f"expected inputs of the reference's shape, got {tuple(inputs.shape[1:])}; pass inputs of "
                "the same network"
            )
        return np.asarray(flat[:, self.positions_].double().numpy())

    def _place(self, name: str) -> int:
        return self.signals_.names.index(name)

    def doubts(self, scores: Doubles) -> Doubles:
        """Rows per cell of doubt, from their signals."""
        return np.bincount(self._doubt_cells(scores), minlength=self.doubt_cells).astype(float)

    def _doubt_cells(self, scores: Doubles) -> Whole:
        cell = np.zeros(len(scores), np.int64)
        for place, edges in self.doubt_edges_.items():
            cell = cell * DOUBT_BINS + np.searchsorted(edges, scores[:, place])
        return cell

    def _cells(self, predictions: Whole, confidence: Doubles, scores: Doubles) -> Whole:
        cell = predictions * (len(self.confidence_edges_) + 1)
        cell = cell + np.searchsorted(self.confidence_edges_, confidence)
        if len(self.distance_edges_):
            bins = np.searchsorted(self.distance_edges_, scores[:, self._place(FEATURES[0])])
            cell = cell * (len(self.distance_edges_) + 1) + bins
        return np.asarray(cell, np.int64)


def halves(rows: int, seed: int) -> tuple[Tensor, Tensor]:
    """Two random halves of so many rows."""
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(seed))
    return order[: rows // 2].sort().values, order[rows // 2 :].sort().values


def _repeated(logits: Tensor) -> Doubles:
    repeated = np.zeros(len(logits))
    repeated[1:] = (logits[1:] == logits[:-1]).all(dim=1).numpy()
    return repeated


def _flat(inputs: Any) -> Tensor | None:
    """Inputs as rows of numbers; None for inputs that are no tensor, and for tokens: these have no range, and
    where texts are short, their padding never changes."""
    if not isinstance(inputs, Tensor) or not inputs.numel():
        return None
    measured = inputs.is_floating_point() or inputs.dtype == torch.uint8
    return inputs.reshape(len(inputs), -1) if measured else None


def _moving_positions(flat: Tensor, seed: int) -> Tensor:
    """Positions that move, drawn if they are many."""
    starts = range(0, flat.shape[1], POSITIONS_AT_ONCE)
    moves = torch.cat([_moves(flat[:, start : start + POSITIONS_AT_ONCE]) for start in starts])
    moving = moves.nonzero()[:, 0]
    order = torch.randperm(len(moving), generator=torch.Generator().manual_seed(seed))
    return moving[order[:POSITIONS]].sort().values


def _moves(flat: Tensor) -> Tensor:
    """Which positions often have another value than the one in the middle."""
    usual = flat.double().median(dim=0).values
    return (flat != usual).double().mean(dim=0) > MOVING
