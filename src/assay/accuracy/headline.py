"""The headline: one number for the accuracy now, its interval, and a verdict; or that it cannot be told."""

import math
from dataclasses import dataclass
from enum import StrEnum

from assay.storage import storable


class AccuracyVerdict(StrEnum):
    """Has accuracy fallen since the reference?"""

    HOLDS = "holds"
    FALLEN = "has fallen"
    CANNOT_TELL = "cannot tell"


@storable("accuracy.Headline")
@dataclass(frozen=True)
class Headline:
    """`value` with its interval, NaN where it cannot be told; `reason` is what it rests on, in words."""

    value: float
    lower: float
    upper: float
    verdict: str
    reason: str

    @classmethod
    def unknown(cls, reason: str) -> "Headline":
        return cls(math.nan, math.nan, math.nan, AccuracyVerdict.CANNOT_TELL.value, reason)

    @classmethod
    def of(cls, value: float, lower: float, upper: float, reference: float, reason: str) -> "Headline":
        """Accuracy has fallen if the whole interval lies below that of the reference; else it holds, as far
        as can be shown."""
        verdict = AccuracyVerdict.FALLEN if upper < reference else AccuracyVerdict.HOLDS
        return cls(value, lower, upper, verdict.value, reason)
