"""Which neurons to count, and in how many bins: those that say most about an indicator under label shift.

A neuron is worth what it takes off the variance of the estimate. With the covariance S of all candidate cells
and M = P(cell | class), the shares of classes have the information M^T S^-1 M, and the estimate a variance
from its inverse. Neurons are added one at a time, each time the one after which that variance is least; what
a candidate adds is the information of its cells that the chosen ones do not explain (a Schur complement), so
that nothing is inverted twice.
"""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from assay.errors import InputError, MissingLabelsError
from assay.notebook import Shown
from assay.reshaping.array_types import Floats
from assay.reshaping.bins import Bins
from assay.reshaping.grouped_cells import GroupedCells
from assay.reshaping.histogram import Histogram
from assay.reshaping.indicator import RatioIndicator, accuracy
from assay.reshaping.mixture import SHRINKAGE
from assay.reshaping.privacy import Privacy
from assay.storage import save, storable
from assay.table import tabled
from assay.trace import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_CANDIDATES = 64
"""Neurons that are compared in full; of more, those that say most alone."""
WORTHWHILE = 0.02
"""More bins are proposed only if they make the standard error smaller by more than this share."""


@storable("reshaping.BinsProposal")
@dataclass(frozen=True, eq=False)
class BinsProposal(Shown):
    """The bins proposed, and how the standard error falls as neurons are added, for each number of bins."""

    title = "Which neurons to count"

    bins: Bins
    steps: pd.DataFrame
    inputs: int
    name: str

    @property
    def bytes(self) -> int:
        """The size of the file a device sends, before it is compressed."""
        return int(self._chosen["bytes"].iloc[-1])

    @property
    def standard_error(self) -> float:
        """Of the estimate, if class frequencies in operation are those of the test set."""
        return float(self._chosen["standard_error"].iloc[-1])

    @property
    def _chosen(self) -> pd.DataFrame:
        return self.steps[self.steps["chosen"]]

    def summary(self) -> str:
        """The neurons, the bins, the bytes, and what the estimate will be worth."""
        neurons = self._chosen["neuron"].tolist()
        return (
            f"Count {len(neurons)} neurons ({', '.join(map(str, neurons))}) in "
            f"{self._chosen['bins'].iloc[0]} bins each: a device sends {self.bytes:,} bytes, and with "
            f"{self.inputs:,} inputs the standard error of {self.name} is {self.standard_error:.4f}."
        )

    @tabled
    def to_frame(self) -> pd.DataFrame:
        """A row per number of bins and neuron added: bins, neuron, standard_error, bytes, chosen."""
        return self.steps.copy()

    def plot(self) -> "Figure":
        """The standard error against the bytes sent, a line for each number of bins."""
        from assay.reshaping.figures import proposal_figure

        return proposal_figure(self.steps)


def propose_bins(
    test: Trace,
    *,
    layer: str = "penultimate",
    neurons: int = 10,
    bins: Sequence[int] = (4, 8, 16),
    inputs: int = 1000,
    indicator: RatioIndicator = accuracy,
    privacy: Privacy | None = None,
    predictions: bool = False,
    network: Any = None,
) -> BinsProposal:
    """The neurons, at most so many, and the number of bins that make the estimate's variance least.

    `inputs` is how many a device counts before it sends. With `privacy`, every neuron more means more noise
    for all, and the proposal stops where the next one would do harm. With `predictions`, predicted class x
    confidence is counted, too, and neurons are chosen beside it. `network` puts its fingerprint into the
    bins.
    """
    if test.labels is None:
        raise MissingLabelsError("expected a test Trace with labels to choose neurons by, got one without")
    if neurons < 1 or inputs < 1 or not bins or min(bins) < 2:
        raise InputError(
            f"expected at least 1 neuron, 1 input and 2 bins, got {neurons}, {inputs} and {list(bins)}"
        )
    steps = []
    for number in bins:
        search = _Search.of(test, layer, number, inputs, indicator, privacy, predictions, network)
        steps.append(search.steps(neurons))
    frame = pd.concat(steps, ignore_index=True)
    last = frame.groupby("bins", sort=True)["standard_error"].min()
    chosen = int(last.index[0])
    for candidate, error in zip(last.index.tolist(), last.tolist(), strict=True):
        if error < (1 - WORTHWHILE) * last[chosen]:
            chosen = int(candidate)
    own = frame["bins"] == chosen
    best = frame[own]["standard_error"].idxmin()
    frame["chosen"] = own & (frame.index <= best)
    picked = tuple(int(neuron) for neuron in frame[frame["chosen"]]["neuron"])
    found = _bins(test, layer, chosen, picked, predictions, network)
    return BinsProposal(found, frame, inputs, indicator.name)


def _bins(
    test: Trace, layer: str, number: int, neurons: Sequence[int] | None, predictions: bool, network: Any
) -> Bins:
    """So many bins of equal width over the range of each neuron, and two for values beyond."""
    every = Bins.from_data(test, layer, 1.0, margin=0.0, neurons=neurons, per_neuron=True, network=network)
    values = every.values(test)
    lows, highs = values.amin(dim=0), values.amax(dim=0)
    widths = ((highs - lows) / number).clamp(min=1e-6)
    found = Bins(
        layer=layer,
        origin=tuple(lows.tolist()),
        width=tuple(widths.tolist()),
        last=number - 1,
        neurons=None if neurons is None else tuple(neurons),
        overflow=True,
        network=every.network,
    )
    return found.with_predictions(test) if predictions else found


@dataclass(frozen=True, eq=False)
class _Search:
    """All candidate cells of one number of bins: their portions by class, covariance, and noise."""

    number: int
    cells: GroupedCells
    covariance: Floats
    slope: Floats
    own_variance: float
    start: tuple[int, ...]
    noise_bins: Floats
    privacy: Privacy | None
    inputs: int
    sizes: tuple[int, ...]

    @classmethod
    def of(
        cls,
        test: Trace,
        layer: str,
        number: int,
        inputs: int,
        indicator: RatioIndicator,
        privacy: Privacy | None,
        predictions: bool,
        network: Any,
    ) -> "_Search":
        assert test.labels is not None
        bins = _bins(test, layer, number, None, predictions, network)
        labels = test.labels.numpy()
        cells = GroupedCells.of(bins.cells(test).numpy(), labels, int(labels.max()) + 1, inputs)
        shares = cells.sizes / cells.sizes.sum()
        covariance = cells.covariance(shares, inputs)
        diagonal = np.diagonal(covariance).copy()
        covariance = (1 - SHRINKAGE) * covariance
        covariance[np.diag_indices_from(covariance)] = diagonal
        numerator, denominator = indicator.parts(test.labels, test.predictions)
        top, bottom = cells.group_means(numerator), cells.group_means(denominator)
        value = float(shares @ top / (shares @ bottom))
        # How the indicator moves with the shares, and the part of its variance that no histogram removes.
        slope = (top - value * bottom) / float(shares @ bottom)
        influence = (numerator - value * denominator) / float(shares @ bottom)
        rest = influence - slope[labels]
        weights = shares / (np.maximum(cells.sizes, 1) * inputs) + (shares / np.maximum(cells.sizes, 1)) ** 2
        rows = len(cells.last_bins)
        first, lasts = bins.first, bins.lasts(rows)
        held = [
            np.bincount(np.minimum(np.searchsorted(ends, np.arange(first, last + 1)), len(ends) - 1),
                        minlength=len(ends))
            for ends, last in zip(cells.last_bins, lasts, strict=True)
        ]  # fmt: skip
        start = (rows - 1,) if predictions else ()
        return cls(
            number, cells, covariance, slope, float((weights[labels] * rest**2).sum()), start,
            np.concatenate(held).astype(np.float64), privacy, inputs, tuple((lasts - first + 1).tolist()),
        )  # fmt: skip

    def steps(self, neurons: int) -> pd.DataFrame:
        """A row per neuron added."""
        spans = list(self.cells.patterns.spans())
        chosen = list(self.start)
        candidates = self._candidates(spans)
        rows = []
        for _ in range(min(neurons, len(candidates))):
            errors = self._errors(spans, chosen, candidates)
            best = int(np.argmin(errors))
            chosen.append(candidates.pop(best))
            rows.append(
                {
                    "bins": self.number,
                    "neuron": chosen[-1],
                    "standard_error": float(errors[best]),
                    "bytes": self._bytes(chosen),
                }
            )
        return pd.DataFrame(rows)

    def _candidates(self, spans: list[slice]) -> list[int]:
        places = [row for row in range(len(spans)) if row not in self.start]
        places = [row for row in places if spans[row].stop - spans[row].start > 1]  # others never change
        if not places:
            raise InputError(
                "expected neurons whose values vary over the test set, got none; use another layer"
            )
        if len(places) <= MOST_CANDIDATES:
            return places
        errors = self._errors(spans, [], places)
        return [places[place] for place in np.sort(np.argsort(errors, kind="stable")[:MOST_CANDIDATES])]

    def _errors(self, spans: list[slice], chosen: list[int], candidates: list[int]) -> Floats:
        """The standard error of the estimate after each candidate joins the chosen ones."""
        covariance = self._with_noise(len(chosen) + 1)
        portions = self.cells.portions
        parts = [np.arange(spans[row].start, spans[row].stop) for row in chosen]
        inside = np.concatenate([np.empty(0, np.int64), *parts])
        base = np.zeros((portions.shape[1],) * 2)
        if len(inside):
            factor = np.linalg.cholesky(covariance[np.ix_(inside, inside)])
            known = np.linalg.solve(factor, portions[inside])
            base = known.T @ known
        errors = []
        for row in candidates:
            own = np.arange(spans[row].start, spans[row].stop)
            apart, block = portions[own], covariance[np.ix_(own, own)]
            if len(inside):
                cross = np.linalg.solve(factor, covariance[np.ix_(inside, own)])
                apart, block = apart - cross.T @ known, block - cross.T @ cross
            added = apart.T @ np.linalg.solve(block, apart)
            errors.append(self._standard_error(base + added))
        return np.array(errors)

    def _standard_error(self, information: Floats) -> float:
        """Of the estimate: shares add up to one, so the slope is taken within that plane.

        Before anything is counted, shares are as uncertain as if uniform on the simplex (a Dirichlet
        distribution, whose variances are about 1 / (K (K + 1))).
        """
        classes = len(information)
        ones = np.ones(classes)
        inverse = np.linalg.inv(information + classes * (classes + 1) * np.eye(classes))
        plane = inverse - np.outer(inverse @ ones, inverse @ ones) / float(ones @ inverse @ ones)
        return float(np.sqrt(max(float(self.slope @ plane @ self.slope), 0.0) + self.own_variance))

    def _with_noise(self, rows: int) -> Floats:
        if self.privacy is None:
            return self.covariance
        noisy = self.covariance.copy()
        deviation = self.privacy.deviation(rows) / self.inputs
        noisy[np.diag_indices_from(noisy)] += self.noise_bins * deviation**2
        return noisy

    def _bytes(self, chosen: list[int]) -> int:
        """The size of a histogram's file, from one as wide as these rows."""
        width = max(self.sizes[row] for row in chosen)
        bins = Bins(last=width - 1, neurons=tuple(range(len(chosen))))
        counts = np.full((len(chosen), width), self.inputs, np.int64)
        with tempfile.TemporaryDirectory(prefix="assay-") as folder:
            path = Path(folder) / "counts"
            save(Histogram(bins, counts, 0, self.inputs), path)
            return os.path.getsize(path)
