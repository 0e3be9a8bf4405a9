"""Gate: one condition that must hold before a network ships."""

import math
from dataclasses import dataclass

from assay.statistics.intervals import Interval
from assay.storage import storable

UNKNOWN: Interval = (math.nan, math.nan)


def decided(interval: Interval, least: float) -> bool | None:
    """Whether it is at least this much: True or False if the whole interval agrees, else None.

    >>> decided((0.2, 0.4), 0.1), decided((0.2, 0.4), 0.5), decided((0.2, 0.4), 0.3)
    (True, False, None)
    """
    lower, upper = interval
    return True if lower > least else False if upper < least else None


@storable("check.Gate")
@dataclass(frozen=True)
class Gate:
    """`passed` is None if the data cannot decide; `words` say what was found, and what to do.

    `interval` (95 %) is that of `measured`; `limit` is the number in `wanted`, a minimum, or a maximum if
    `at_most`.
    """

    name: str
    measured: float
    interval: Interval
    limit: float
    wanted: str
    passed: bool | None
    words: str
    at_most: bool = False

    @property
    def verdict(self) -> str:
        return {True: "passed", False: "failed", None: "undecided"}[self.passed]
