"""Do several treatments differ, measured on the same cases? Tests on ranks, as in Demsar 2006.

Values are (cases, treatments), at least two of each.
"""

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Values = NDArray[np.float64]


def overall_p_value(values: Values) -> float:
    """The p-value of "all treatments are alike": Friedman's test; for two treatments Wilcoxon's signed ranks.

    1 where no case tells any two treatments apart.
    """
    if (values == values[:, :1]).all():
        return 1.0
    if values.shape[1] == 2:
        return float(stats.wilcoxon(values[:, 0], values[:, 1], zero_method="zsplit").pvalue)
    return float(stats.friedmanchisquare(*values.T).pvalue)


def pairwise_p_values(values: Values) -> Values:
    """(treatments, treatments): Nemenyi's test after Friedman's; `overall_p_value` for two treatments."""
    cases, treatments = values.shape
    if treatments == 2:
        p_value = overall_p_value(values)
        return np.array([[1.0, p_value], [p_value, 1.0]])
    ranks = stats.rankdata(values, axis=1).mean(axis=0)
    distances = np.abs(ranks[:, None] - ranks) / _rank_error(cases, treatments)
    return np.asarray(stats.studentized_range.sf(distances * np.sqrt(2), treatments, np.inf))


def critical_difference(cases: int, treatments: int, level: float = 0.95) -> float:
    """The distance of average ranks beyond which Nemenyi's test calls two treatments different.

    >>> round(critical_difference(cases=14, treatments=4), 2)  # Demsar 2006, section 3.2.2: 1.25
    1.25
    """
    quantile = stats.studentized_range.ppf(level, treatments, np.inf) / np.sqrt(2)
    return float(quantile * _rank_error(cases, treatments))


def _rank_error(cases: int, treatments: int) -> float:
    """The standard error of a difference of two average ranks."""
    return float(np.sqrt(treatments * (treatments + 1) / (6 * cases)))
