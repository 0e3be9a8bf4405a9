"""The headline: one number for the accuracy now, its interval, and a verdict; or that it cannot be told."""

import math
from dataclasses import dataclass
from enum import Enum

from assay.storage import storable


class Verdict(str, Enum):
    """Has accuracy fallen since the reference?"""

    HOLDS = "holds"
    FALLEN = "has fallen"
    CANNOT_TELL = "cannot tell"

    def __str__(self) -> str:
        return self.value


@storable("accuracy.Headline")
@dataclass(frozen=True)
class Headline:
    """`value` with its interval, NaN where it cannot be told; `reason` says in a sentence what it rests on."""

    value: float
    lower: float
    upper: float
    verdict: str
    reason: str

    @classmethod
    def unknown(cls, reason: str) -> "Headline":
        return cls(math.nan, math.nan, math.nan, Verdict.CANNOT_TELL.value, reason)

    @classmethod
    def of(cls, value: float, lower: float, upper: float, reference: float, reason: str) -> "Headline":
        """Accuracy has fallen if the whole interval lies below that of the reference; else it holds, as far
        as can be shown."""
        verdict = Verdict.FALLEN if upper < reference else Verdict.HOLDS
        return cls(value, lower, upper, verdict.value, reason)
