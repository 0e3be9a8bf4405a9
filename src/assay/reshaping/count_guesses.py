"""How likely inputs of a device are right, as far as counts tell: the guesses that a few labels correct.

A device that can send a few labelled inputs beside its counts needs no assumption at all. Labels of inputs
drawn at random give the accuracy whatever has changed, and guesses for all inputs make the interval shorter
(prediction-powered inference). Counts do not say what each input was, but a guess that is linear in the cells
needs no more: its mean over all inputs is a sum over the counts, exactly. That is why a guess is never cut
off at 0 or 1: the mean of what was cut off would be another one, and nobody could tell which.
"""

from dataclasses import dataclass

import numpy as np

from assay.errors import InputError
from assay.reshaping.array_types import Floats
from assay.reshaping.grouped_cells import GroupedCells
from assay.reshaping.histogram import Histogram
from assay.reshaping.indicator import accuracy
from assay.trace import Trace


@dataclass(frozen=True, eq=False)
class CountsGuesses:
    """`labelled`: a guess for each labelled input; `mean`: that of the guesses for all inputs counted."""

    labelled: Floats
    mean: float


def guesses_from_counts(
    test: Trace, operational: Histogram, labelled: Trace, shares: Floats
) -> CountsGuesses:
    """How likely inputs are right: the regression of being right on the cells, over the labelled test set.

    Test points are weighted to the class frequencies `shares`, as fitted to the counts. `labelled` are inputs
    of this device, out of those it counted; their labels are not looked at.
    """
    labels = test.known_labels.numpy()
    cells = GroupedCells.of(operational.bins.cells(test).numpy(), labels, len(shares), operational.total)
    hits, _ = accuracy.parts(labels, test.predictions)
    slopes = _slopes(cells, shares, hits)
    mean = float(slopes @ cells.counts(operational)) / operational.total
    return CountsGuesses(cells.patterns_of(operational.bins.cells(labelled).numpy()).prices(slopes), mean)


def check_counted(labelled: Trace, operational: Histogram) -> None:
    """Raise an error if a labelled input cannot be among those counted. Noise would hide that."""
    seen = Histogram.of_cells(operational.bins.cells(labelled), operational.bins)
    _, ours, theirs = seen.aligned(operational)
    missing = int(np.maximum(ours - theirs, 0).sum(axis=1).max())
    if missing and operational.privacy is None:
        raise InputError(
            f"expected labelled inputs that this device counted, got at least {missing} of {len(labelled)} "
            "in bins that hold fewer; pass inputs drawn from those behind the histogram"
        )


def _slopes(cells: GroupedCells, shares: Floats, hits: Floats) -> Floats:
    """What each cell adds to the guess: weighted least squares, each cell shrunk by one point's worth."""
    weights = (shares / np.maximum(cells.sizes, 1))[cells.group] * len(hits)
    gram = cells.patterns.gram(weights) + np.eye(cells.patterns.cells)
    return np.asarray(np.linalg.solve(gram, cells.patterns.totals(weights * hits)), np.float64)
