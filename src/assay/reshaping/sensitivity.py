"""What an indicator can be if the odds of an error within each class change by a factor up to gamma."""

import math
from dataclasses import dataclass

import numpy as np

from assay.errors import InputError
from assay.reshaping.array_types import Floats
from assay.storage import storable

GAMMAS: Floats = np.unique(np.concatenate([np.geomspace(1, 32, 61), [1.1, 1.25, 1.5, 2, 3, 4, 5, 10, 20]]))
"""The ends are computed for these; between them they are interpolated."""


def checked_gamma(gamma: float) -> float:
    if not (math.isfinite(gamma) and 1 <= gamma <= GAMMAS[-1]):
        raise InputError(
            f"expected a gamma from 1 (class frequencies only) to {GAMMAS[-1]:g}, got {gamma}; "
            "2 means that errors within a class may be twice as likely"
        )
    return float(gamma)


@storable("reshaping.Sensitivity")
@dataclass(frozen=True, eq=False)
class Sensitivity:
    """Lower and upper end for every gamma of `GAMMAS`; the first ones are the interval itself."""

    lowers: Floats
    uppers: Floats

    def range_at(self, gamma: float) -> tuple[float, float]:
        place = np.log(checked_gamma(gamma))
        ends = (np.interp(place, np.log(GAMMAS), values) for values in (self.lowers, self.uppers))
        lower, upper = (float(end) for end in ends)
        return lower, upper

    def breaking_gamma(self, least: float) -> float | None:
        """The smallest gamma whose range reaches below `least`; None if none does."""
        below = np.flatnonzero(self.lowers < least)
        if not len(below):
            return None
        first = int(below[0])
        if not first:
            return 1.0
        ends = self.lowers[[first, first - 1]]
        return float(np.exp(np.interp(least, ends, np.log(GAMMAS[[first, first - 1]]))))


def tilted(rate: Floats | float, gamma: float) -> Floats:
    """The share of hits if the odds of a miss are gamma times what they were."""
    return np.asarray(rate / (rate + gamma * (1 - rate)))
