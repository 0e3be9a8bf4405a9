"""How likely each input of a device is right, as far as counts tell: the guesses that a few labels correct.

A device that can send a few labelled inputs beside its counts needs no assumption at all. Labels of inputs
drawn at random give the accuracy whatever has changed, and guesses for all inputs make the interval shorter
(prediction-powered inference). Counts do not say what each input was, but a guess that is linear in the cells
needs no more: its mean over all inputs is a sum over the counts.
"""

import numpy as np

from assay.errors import InputError, MissingLabelsError
from assay.reshaping.array_types import Floats
from assay.reshaping.grouped_cells import GroupedCells
from assay.reshaping.histogram import Histogram
from assay.reshaping.indicator import accuracy
from assay.reshaping.mixture import fitted_mixture
from assay.trace import Trace


def guesses_from_counts(test: Trace, operational: Histogram, labelled: Trace) -> Floats:
    """A guess per counted input: for the rows of `labelled` first, then for all the others.

    `labelled` are inputs of this device, drawn at random from those it counted. The guess is the regression
    of being right on the cells, over the test points weighted to the fitted class frequencies. The others,
    which nobody saw, all get the value that makes the mean of all guesses what the counts say. So

        accuracy_from_labels(guesses, range(len(labelled)), labelled.correct, expected=estimate.value)

    of `assay.accuracy` answers what counts and labels say together.
    """
    if test.labels is None:
        raise MissingLabelsError("expected a test Trace with labels to guess from, got one without")
    operational.check_usable()
    if not 0 < len(labelled) <= operational.total:
        raise InputError(
            f"expected 1 to {operational.total} labelled inputs of those that were counted, got "
            f"{len(labelled)}; pass rows of this device only"
        )
    labels = test.labels.numpy()
    cells = GroupedCells.of(
        operational.bins.cells(test).numpy(), labels, int(labels.max()) + 1, operational.total
    )
    hits, _ = accuracy.parts(labels, test.predictions)
    slopes = _slopes(cells, fitted_mixture(cells, operational).shares, hits)
    mean = float(slopes @ (cells.counts(operational) / operational.total))
    known = np.clip(cells.patterns_of(operational.bins.cells(labelled).numpy()).prices(slopes), 0.0, 1.0)
    others = operational.total - len(known)
    rest = (operational.total * mean - known.sum()) / max(others, 1)
    return np.concatenate([known, np.full(others, np.clip(rest, 0.0, 1.0))])


def _slopes(cells: GroupedCells, shares: Floats, hits: Floats) -> Floats:
    """What each cell adds to the guess: weighted least squares, each cell shrunk by one point's worth."""
    weights = (shares / np.maximum(cells.sizes, 1))[cells.group] * len(hits)
    gram = cells.patterns.gram(weights) + np.eye(cells.patterns.cells)
    return np.asarray(np.linalg.solve(gram, cells.patterns.totals(weights * hits)), np.float64)
