"""Statistics that several packages share: intervals, bootstrap, AUROC, rank correlation and rank tests."""

from assay.statistics.auroc import Auroc, auroc, placements
from assay.statistics.bootstrap import poisson_counts, resampled_counts, resampled_means, resampled_sums
from assay.statistics.correlation import RankCorrelation, rank_correlation
from assay.statistics.difference import Measured, difference_interval
from assay.statistics.intervals import check_level, normal_interval, percentile_interval, wilson_interval
from assay.statistics.rank_tests import critical_difference, overall_p_value, pairwise_p_values

__all__ = [
    "Auroc",
    "Measured",
    "RankCorrelation",
    "auroc",
    "check_level",
    "critical_difference",
    "difference_interval",
    "normal_interval",
    "overall_p_value",
    "pairwise_p_values",
    "percentile_interval",
    "placements",
    "poisson_counts",
    "rank_correlation",
    "resampled_counts",
    "resampled_means",
    "resampled_sums",
    "wilson_interval",
]
