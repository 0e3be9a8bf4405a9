"""The difference of two quantities that were measured apart, each with its interval."""

import math
from dataclasses import dataclass

from scipy.stats import norm

from assay.statistics.intervals import Interval


@dataclass(frozen=True)
class Measured:
    """A number that a result stands for, with its 95 % interval; more is better unless `less_is_better`."""

    name: str
    value: float
    interval: Interval
    less_is_better: bool = False

    @property
    def known(self) -> bool:
        return all(map(math.isfinite, (self.value, *self.interval)))


def difference_interval(
    new: float, new_interval: Interval, old: float, old_interval: Interval, comparisons: int = 1
) -> Interval:
    """The 95 % interval of new - old from the two 95 % intervals (MOVER: Zou and Donner 2008, Eq. 5).

    L = d - sqrt((x1 - l1)^2 + (u2 - x2)^2), U = d + sqrt((u1 - x1)^2 + (x2 - l2)^2), for independent
    measurements; of measurements on the same rows, which vary together, it is too wide rather than too
    narrow. With several comparisons the level is shared among them (Bonferroni), by the ratio of normal
    quantiles.

    >>> lower, upper = difference_interval(0.9, (0.87, 0.93), 0.8, (0.76, 0.84))
    >>> round(lower, 3), round(upper, 3)
    (0.05, 0.15)
    """
    wider = float(norm.ppf(1 - 0.025 / comparisons) / norm.ppf(0.975))
    down = math.hypot(new - new_interval[0], old_interval[1] - old)
    up = math.hypot(new_interval[1] - new, old - old_interval[0])
    return new - old - wider * down, new - old + wider * up
