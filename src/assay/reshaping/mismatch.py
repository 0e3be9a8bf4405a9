"""Why no subset of the test set is similar: the bins in the way, and an epsilon that is large enough."""

import numpy as np
import pandas as pd

from assay.errors import UndecidedError
from assay.reshaping.array_types import Floats
from assay.reshaping.histogram import Histogram
from assay.reshaping.occupied_bins import OccupiedBins
from assay.reshaping.solver import SubsetProblem, certificate, solved


class CannotMatchError(UndecidedError):
    """No subset of the test set has the operational histograms within epsilon.

    `cells` is a table of the neurons and bins that together make it impossible; `smallest_epsilon` is one for
    which a subset was found (None if none was found in time); below `least_epsilon` there is provably none.
    """

    def __init__(
        self, message: str, cells: pd.DataFrame, least_epsilon: float, smallest_epsilon: float | None
    ) -> None:
        super().__init__(message)
        self.cells = cells
        self.least_epsilon = least_epsilon
        self.smallest_epsilon = smallest_epsilon


def mismatch(
    bins: OccupiedBins, operational: Histogram, problem: SubsetProblem, time_limit: float, seed: int
) -> CannotMatchError:
    """The diagnosis, from a linear program of its own: the least epsilon, and the cells that determine it."""
    found = solved(problem, "diagnose", time_limit, seed=seed) if problem.patterns.points else {}
    multipliers = (
        found["smallest"]["multipliers"] if "smallest" in found else np.zeros(problem.patterns.cells)
    )
    least = certificate.least_epsilon(problem, multipliers) if problem.patterns.points else 0.0
    would_do = float(found["would_do"]["epsilon"]) if "would_do" in found else None
    cells = _cells_in_the_way(bins, operational, problem, multipliers)
    names = ", ".join(f"{row.neuron} bin {row.bin}" for row in cells.head(3).itertuples())
    remedy = (
        f"epsilon={_rounded_up(would_do)} is enough (none below {least:.6g} is)"
        if would_do is not None
        else f"no epsilon below {least:.6g} can; use a larger epsilon, wider bins or a richer test set"
    )
    return CannotMatchError(
        f"expected a test set that can match operation within epsilon={problem.target.epsilon:g}, got "
        f"one that cannot: {len(cells)} bins are in the way, above all "
        f"{names or 'the points that may not be removed'}; {remedy}",
        cells,
        least,
        None if would_do is None else _rounded_up(would_do),
    )


def _cells_in_the_way(
    bins: OccupiedBins, operational: Histogram, problem: SubsetProblem, multipliers: Floats
) -> pd.DataFrame:
    """Cells that operation fills and the test set cannot, then those whose limits bind the least epsilon."""
    everything = np.ones(bins.patterns.points, bool)
    frame = bins.frame(operational, test=everything)
    needed = problem.target.portions - problem.target.epsilon
    missing = (problem.available == 0) & (needed > 0)
    share = np.abs(multipliers) / max(float(np.abs(multipliers).sum()), 1e-300)
    frame["reason"] = np.where(
        missing,
        "no test point is there",
        np.where(multipliers < 0, "too few test points fit there", "test points cannot avoid it"),
    )
    frame["weight"] = share
    found: pd.DataFrame = frame[missing | (share > 1e-6)]
    order = np.lexsort((-found["weight"].to_numpy(), ~missing[found.index.to_numpy()]))
    return pd.DataFrame(found.iloc[order]).reset_index(drop=True)


def _rounded_up(value: float) -> float:
    """Three significant digits, rounded up so that a match is still possible."""
    digits = 2 - int(np.floor(np.log10(value)))
    return float(np.round(np.ceil(value * 10.0**digits) / 10.0**digits, max(digits, 0)))
