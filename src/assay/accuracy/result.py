"""The table of estimates."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pandas as pd

from assay.errors import InputError
from assay.storage import storable
from assay.table import tabled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@storable("accuracy.AccuracyEstimate")
@dataclass(frozen=True)
class AccuracyEstimate:
    """One method's estimate of the accuracy in operation, right if its assumption holds."""

    method: str
    value: float
    lower: float
    upper: float
    assumption: str
    counted: str
    note: str = ""
    """Why not to use it, in a few words; empty where nothing is known against it. A method that was left out
    has a note, and NaN for its value."""

    @property
    def usable(self) -> bool:
        """Whether there is an estimate and nothing is known against it."""
        return not self.note and math.isfinite(self.value)


@storable("accuracy.AccuracyEstimates")
@dataclass(frozen=True, eq=False)
class AccuracyEstimates:
    """Every method's estimate over the same operational rows."""

    title: ClassVar[str] = "Accuracy without labels"

    estimates: list[AccuracyEstimate]
    reference_accuracy: float
    rows: int
    level: float

    def __getitem__(self, method: str) -> AccuracyEstimate:
        for estimate in self.estimates:
            if estimate.method == method:
                return estimate
        raise InputError(
            f"expected a method of {[one.method for one in self.estimates]}, got {method!r}; choose one"
        )

    @tabled
    def to_frame(self) -> pd.DataFrame:
        """A row per method: value, lower, upper, why not to use it, its assumption, and what it sums."""
        names = ["method", "value", "lower", "upper", "note", "assumption", "counted"]
        return pd.DataFrame([{name: getattr(one, name) for name in names} for one in self.estimates])

    def summary(self) -> str:
        values = [one.value for one in self.estimates if one.usable and one.method != "reference accuracy"]
        lowest, middle, highest = np.quantile(values, [0.0, 0.5, 1.0])
        verdict = (
            "They agree, which is no proof: each is right only under its own assumption, and none can see "
            "a change in the labels that leaves the inputs as they were."
            if highest - lowest <= 0.05
            else "They disagree, so at least some of their assumptions fail here; label a few hundred "
            "operational rows before you trust any of them."
        )
        return (
            f"On {self.rows} operational predictions without labels, {len(values)} methods put the accuracy "
            f"between {lowest:.1%} and {highest:.1%} (median {middle:.1%}); on the reference it was "
            f"{self.reference_accuracy:.1%}. {verdict}"
        )

    def plot(self) -> "Figure":
        from assay.accuracy.figures import estimates_figure

        return estimates_figure(self.to_frame(), self.reference_accuracy, self.level)
