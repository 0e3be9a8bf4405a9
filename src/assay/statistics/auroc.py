"""How well scores tell two sets apart, whatever the threshold."""

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, rankdata

Numbers = NDArray[np.float64]


def separation(known: Numbers, unknown: Numbers, confidence: float = 0.95) -> tuple[float, float, float]:
    """The area under the ROC curve and its interval by DeLong et al. 1988; ties count one half. N log N.

    NaN where a set is empty; an interval of NaN where one has a single row.

    >>> separation(np.array([0.0, 1.0]), np.array([1.0, 2.0]))[0]
    0.875
    """
    n, p = len(known), len(unknown)
    if not p or not n:
        return float("nan"), float("nan"), float("nan")
    everyone = rankdata(np.concatenate([unknown, known]))
    # Placement of each row: the share of the other set that it outranks.
    above = (everyone[:p] - rankdata(unknown)) / n
    below = 1 - (everyone[p:] - rankdata(known)) / p
    area = float(above.mean())
    if min(p, n) < 2:
        return area, float("nan"), float("nan")
    reach = float(norm.ppf((1 + confidence) / 2) * np.sqrt(above.var(ddof=1) / p + below.var(ddof=1) / n))
    return area, max(0.0, area - reach), min(1.0, area + reach)
