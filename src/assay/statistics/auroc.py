"""AUROC: how well scores separate two sets, whatever the threshold."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from assay.statistics.intervals import normal_interval

Numbers = NDArray[np.float64]


class Auroc(NamedTuple):
    """The area under the ROC curve and the ends of its interval."""

    value: float
    lower: float
    upper: float


def auroc(
    known: Numbers,
    unknown: Numbers,
    level: float = 0.95,
    *,
    sources: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
) -> Auroc:
    """The chance that an unknown row scores above a known one, with the interval of DeLong et al. 1988.

    Ties count one half. All NaN where a set is empty; no interval where one has a single row. N log N.
    `sources` say which input each row of either set came from: rows of one input are alike, so the interval
    is then that of Obuchowski 1997, in which inputs and not rows are independent.

    >>> auroc(np.array([0.0, 1.0]), np.array([1.0, 2.0])).value
    0.875
    """
    n, p = len(known), len(unknown)
    if not p or not n:
        return Auroc(math.nan, math.nan, math.nan)
    below, above = placements(known, unknown)
    area = float(above.mean())
    if sources is None:
        error = math.nan if min(p, n) < 2 else math.sqrt(above.var(ddof=1) / p + below.var(ddof=1) / n)
    else:
        error = _clustered_error(below - area, above - area, *sources)
    if math.isnan(error):
        return Auroc(area, math.nan, math.nan)
    return Auroc(area, *normal_interval(area, error, level, smallest=0.0, largest=1.0))


def placements(known: Numbers, unknown: Numbers) -> tuple[Numbers, Numbers]:
    """For every known row the share of unknown rows above it, for every unknown row that of known rows below.

    The mean of either is the AUROC, and their spread gives its variance (DeLong et al. 1988).

    >>> [part.tolist() for part in placements(np.array([0.0, 1.0]), np.array([1.0, 2.0]))]
    [[1.0, 0.75], [0.75, 1.0]]
    """
    n, p = len(known), len(unknown)
    everyone = rankdata(np.concatenate([unknown, known]))
    above = (everyone[:p] - rankdata(unknown)) / n
    below = 1 - (everyone[p:] - rankdata(known)) / p
    return below, above


def _clustered_error(
    below: Numbers, above: Numbers, known: NDArray[np.int64], unknown: NDArray[np.int64]
) -> float:
    """The standard error from placements less the area: Obuchowski 1997, Eqs. 3 to 5.

    S10, S01 and S11 there, divided by the numbers of rows, are these three sums over inputs.
    """
    inputs, places = np.unique(np.concatenate([known, unknown]), return_inverse=True)
    sums = [
        np.bincount(places[part], values, minlength=len(inputs)) / len(values)
        for part, values in ((slice(0, len(known)), below), (slice(len(known), None), above))
    ]
    counts = [len(np.unique(part)) for part in (known, unknown)]
    if min(counts) < 2:
        return math.nan
    own = sum(
        count / (count - 1) * float(np.square(one).sum()) for count, one in zip(counts, sums, strict=True)
    )
    both = 2 * len(inputs) / (len(inputs) - 1) * float((sums[0] * sums[1]).sum())
    return math.sqrt(max(0.0, own + both))
