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


def auroc(known: Numbers, unknown: Numbers, level: float = 0.95) -> Auroc:
    """The chance that an unknown row scores above a known one, with the interval of DeLong et al. 1988.

    Ties count one half. All NaN where a set is empty; no interval where one has a single row. N log N.

    >>> auroc(np.array([0.0, 1.0]), np.array([1.0, 2.0])).value
    0.875
    """
    n, p = len(known), len(unknown)
    if not p or not n:
        return Auroc(math.nan, math.nan, math.nan)
    everyone = rankdata(np.concatenate([unknown, known]))
    # Placement of each row: the share of the other set that it outranks.
    above = (everyone[:p] - rankdata(unknown)) / n
    below = 1 - (everyone[p:] - rankdata(known)) / p
    area = float(above.mean())
    if min(p, n) < 2:
        return Auroc(area, math.nan, math.nan)
    error = float(np.sqrt(above.var(ddof=1) / p + below.var(ddof=1) / n))
    return Auroc(area, *normal_interval(area, error, level, smallest=0.0, largest=1.0))
