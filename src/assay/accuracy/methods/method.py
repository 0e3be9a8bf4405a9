"""The whole contract of a way to estimate accuracy without labels.

A method is fitted on labelled reference data. In operation it needs only sums over rows, which may be taken
on many machines and added; what is summed is the method's business.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from assay.accuracy.predictions import Labelled, Predictions
from assay.statistics import intervals
from assay.volatility.certainty import Doubles


class Method(ABC):
    """One way to estimate accuracy, with the assumption under which it is right."""

    name: ClassVar[str]
    assumption: ClassVar[str]
    counted: ClassVar[str]
    """What it sums over operational rows."""

    @abstractmethod
    def sums(self, predictions: Predictions) -> Doubles:
        """What it needs of these rows; sums of disjoint rows may be added."""

    @abstractmethod
    def interval(self, sums: Doubles, rows: int, level: float) -> tuple[float, float, float]:
        """(value, lower, upper) of the accuracy on `rows` rows; NaN where the rows are too few."""


@dataclass
class MeanScore(Method):
    """A method that guesses for each row, by a score in [0, 1], whether it is right, and takes the mean.

    The mean score on the reference is off by `shift`, which is added in operation (unless a method trusts its
    scores as they are). The interval is normal: if in operation the errors of the scores vary as they do on
    the reference, the estimate has variance Var(right - score) (1 / n + 1 / N).
    """

    parameters: Doubles
    """What the scores need besides the row."""
    shift: float
    variance: float
    reference_rows: int

    corrected: ClassVar[bool] = True

    @classmethod
    def fit(cls, reference: Labelled) -> Self:
        parameters = cls.learned(reference)
        errors = reference.correct - cls.scores(reference.predictions, parameters)
        shift = float(errors.mean())
        # One more row, as wrong as can be, so that a reference without errors is not taken for certainty.
        variance = (float(((errors - shift) ** 2).sum()) + 1) / len(errors)
        return cls(parameters, shift if cls.corrected else 0.0, variance, len(errors))

    @classmethod
    def learned(cls, reference: Labelled) -> Doubles:
        return np.zeros(1)

    @classmethod
    @abstractmethod
    def scores(cls, predictions: Predictions, parameters: Doubles) -> Doubles:
        """How likely each row is right."""

    def sums(self, predictions: Predictions) -> Doubles:
        return np.array([self.scores(predictions, self.parameters).sum()])

    def interval(self, sums: Doubles, rows: int, level: float) -> tuple[float, float, float]:
        return normal_interval(
            float(sums[0]) / rows + self.shift, self.variance * (1 / self.reference_rows + 1 / rows), level
        )


def normal_interval(value: float, variance: float, level: float) -> tuple[float, float, float]:
    """value ± z deviations, cut to [0, 1]."""
    lower, upper = intervals.normal_interval(value, variance**0.5, level, smallest=0.0, largest=1.0)
    return min(max(value, 0.0), 1.0), lower, upper
