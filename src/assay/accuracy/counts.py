"""Sums over operational predictions, which are all that a device must send."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pandas as pd

from assay.accuracy.set_sums import SetSums
from assay.errors import InputError
from assay.notebook import Shown
from assay.storage import storable
from assay.table import tabled
from assay.volatility.certainty import Doubles


@storable("accuracy.PredictionCounts")
@dataclass(frozen=True, eq=False)
class PredictionCounts(Shown):
    """Sums over some rows for an AccuracyEstimator; merge those of disjoint rows with `+`.

    Contains one array of sums per method, those of the answer, and no rows. `estimator` is the fingerprint of
    the fitted estimator that made them: sums made by different estimators do not add up.
    """

    sums: Mapping[str, Doubles]
    rows: int
    estimator: str
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Methods that have nothing to say about some of these rows, and why."""
    answer: SetSums | None = None
    """What the answer needs; None for an estimator that gives none."""

    def __add__(self, other: "PredictionCounts") -> "PredictionCounts":
        if self.estimator != other.estimator:
            raise InputError(
                "expected counts made by the same fitted AccuracyEstimator, got counts made by two; "
                "send one saved estimator to all devices"
            )
        sums = {name: value + other.sums[name] for name, value in self.sums.items() if name in other.sums}
        left_out = {**other.left_out, **self.left_out}
        answer = None if self.answer is None or other.answer is None else self.answer + other.answer
        return PredictionCounts(sums, self.rows + other.rows, self.estimator, left_out, answer)

    @tabled
    def to_frame(self) -> pd.DataFrame:
        """A row per number."""
        return pd.DataFrame(
            [
                {"method": name, "place": place, "sum": float(value)}
                for name, values in self.sums.items()
                for place, value in enumerate(values.ravel())
            ]
        )
