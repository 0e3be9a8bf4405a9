"""Thresholds that keep their rate where rows come in groups: frames of one track, visits of one patient."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import binom
from torch import Tensor

from assay.errors import InputError

Numbers = NDArray[np.float64]


def group_numbers(groups: Any, rows: int) -> Tensor:
    """The group of every row as a number from 0."""
    values = groups.numpy() if isinstance(groups, Tensor) else np.asarray(groups)
    if values.ndim != 1 or len(values) != rows:
        raise InputError(
            f"expected groups with one name or number for each of {rows} rows, got {values.shape}; "
            "say of every row which track, patient or device it came from"
        )
    return torch.from_numpy(np.unique(values, return_inverse=True)[1])


def group_threshold(scores: Tensor, groups: Tensor, rate: float, level: float | None) -> float:
    """The smallest score above which, in a new group, at most a share `rate` of rows lies on average.

    With r_k(t) the share of rows above t in group k of K, t is the smallest score with (sum_k r_k(t) + 1) /
    (K + 1) <= rate. If groups are exchangeable, a row of a new group is then above t with probability at most
    `rate`, however the rows of a group depend on each other: hierarchical conformal prediction (Lee, Barber
    and Willett 2023, Theorem 1), or conformal risk control of r_k (Angelopoulos et al. 2024).

    With `level` the mean share over new groups is at most `rate` with that probability over calibration sets:
    the p-value of Hoeffding and Bentkus for the mean of K shares (Bates et al. 2021, Proposition 4) must be
    at most 1 - level. Infinity where there are too few groups.
    """
    ordered, weights, count = _ordered(scores, groups)
    above = np.clip(weights.sum() - np.cumsum(weights), 0, None)  # sum_k r_k at every score
    kept = (
        above + 1 <= rate * (count + 1)
        if level is None
        else _p_values(above / count, count, rate) <= 1 - level
    )
    return float(ordered[kept.argmax()]) if kept.any() else float("inf")


def _ordered(scores: Tensor, groups: Tensor) -> tuple[Numbers, Numbers, int]:
    """Scores in order, what each row weighs in the share of its group, and the number of groups."""
    values = scores.double().nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=torch.inf).numpy()
    sizes = torch.bincount(groups).numpy()
    order = np.argsort(values, kind="stable")
    return values[order], 1 / sizes[groups.numpy()[order]], int((sizes > 0).sum())


def _p_values(means: Numbers, count: int, rate: float) -> Numbers:
    """Of "the mean share is above `rate`", from the mean of `count` shares."""
    low = np.clip(np.minimum(means, rate), 1e-300, None)
    divergence = low * np.log(low / rate) + (1 - low) * np.log1p((rate - low) / (1 - rate))
    hoeffding = np.exp(-count * np.maximum(divergence, 0))
    bentkus = np.e * binom.cdf(np.ceil(count * means - 1e-9), count, rate)
    return np.asarray(np.minimum(np.minimum(hoeffding, bentkus), 1.0))


def promise(calibration: Mapping[str, Any]) -> str:
    """What a calibration promises, in a sentence."""
    rate, level, groups, rows = (
        calibration[name] for name in ("false_alarm_rate", "level", "groups", "rows")
    )
    sure = "" if level is None else f", with probability {level:g} over calibration sets"
    if groups is None:
        return f"of inputs like the {rows:,} calibrated on, at most {rate:.3g} raise the alarm{sure}"
    return (
        f"in a new group like the {groups:,} calibrated on, at most {rate:.3g} of the inputs raise the alarm "
        f"on average over groups{sure}; a single group may have more"
    )
