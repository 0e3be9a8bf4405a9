"""The table of estimates."""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import pandas as pd

from assay.accuracy.headline import AccuracyVerdict, Headline
from assay.accuracy.prediction_powered import LabelledAccuracy
from assay.accuracy.set_place import SetPlace
from assay.errors import InputError
from assay.notebook import Shown
from assay.statistics import Measured
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
class AccuracyEstimates(Shown):
    """The answer about operational rows, and every method's estimate below it.

    `headline` is the answer; its `value`, `lower`, `upper`, `verdict` and `reason` are also here. The methods
    are right under their own assumptions; how they disagree is worth a look, which of them is right nobody
    knows.
    """

    title: ClassVar[str] = "Accuracy without labels"

    estimates: list[AccuracyEstimate]
    reference_accuracy: float
    rows: int
    level: float
    headline: Headline
    place: SetPlace | None = None
    """Where the set lies among the lessons; None where nothing was taught."""
    labelled: LabelledAccuracy | None = None
    """What the labels of a few rows say, where there are any: then the headline says the same."""

    value = property(lambda self: self.headline.value)
    lower = property(lambda self: self.headline.lower)
    upper = property(lambda self: self.headline.upper)
    verdict = property(lambda self: self.headline.verdict)
    reason = property(lambda self: self.headline.reason)

    def with_labels(self, labelled: LabelledAccuracy) -> "AccuracyEstimates":
        """The same with the answer that a few labels give."""
        reason = f"{labelled.labelled} labelled rows, whatever has changed"
        found = labelled.value, labelled.lower, labelled.upper
        headline = Headline.of(*found, self.reference_accuracy, reason)
        return replace(self, headline=headline, labelled=labelled)

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
        return f"{self.answer()} {self._methods()}"

    def answer(self) -> str:
        """The headline in words."""
        one, reference = self.headline, f"on the reference it was {self.reference_accuracy:.1%}"
        if one.verdict == AccuracyVerdict.CANNOT_TELL:
            return f"Cannot tell the accuracy of these {self.rows} rows: {one.reason} ({reference})."
        has = "has fallen" if one.verdict == AccuracyVerdict.FALLEN else "is not shown to have fallen"
        return (
            f"Accuracy {has}: {one.value:.1%} of these {self.rows} predictions are right ({self.level:.0%} "
            f"interval {one.lower:.1%} to {one.upper:.1%}; {one.reason}); {reference}."
        )

    def measures(self) -> list[Measured]:
        """What two answers are compared by."""
        return [Measured("accuracy", self.value, (self.lower, self.upper))]

    def banner(self) -> tuple[bool | None, str]:
        """The verdict in one sentence."""
        held = {AccuracyVerdict.HOLDS: True, AccuracyVerdict.FALLEN: False}
        return held.get(AccuracyVerdict(self.verdict)), self.answer()

    def advice(self) -> str:
        """What to do about the answer."""
        return {
            AccuracyVerdict.HOLDS: "Nothing now; ask again with the next window of predictions.",
            AccuracyVerdict.FALLEN: "Label a few rows to be sure (assay accuracy --to-label 50 draws them), "
            "then look at what has changed in the inputs and retrain, or stop relying on the network there.",
            AccuracyVerdict.CANNOT_TELL: "Label a few rows: assay accuracy --to-label 50 draws them, and the "
            "interval then holds whatever has changed.",
        }[AccuracyVerdict(self.verdict)]

    def _methods(self) -> str:
        values = [one.value for one in self.estimates if one.usable and one.method != "reference accuracy"]
        if not values:
            return "No single method has an estimate."
        return f"{len(values)} single methods put it between {min(values):.1%} and {max(values):.1%}."

    def plot(self) -> "Figure":
        from assay.accuracy.figures import estimates_figure

        return estimates_figure(self)

    def figures(self) -> list["Figure"]:
        """What `plot` shows, as figures of their own."""
        from assay.accuracy.figures import separate_figures

        return separate_figures(self)
