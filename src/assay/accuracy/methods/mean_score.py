"""The parent of methods that score each row and take the mean."""

from abc import abstractmethod
from typing import ClassVar, Self

import numpy as np

from assay.accuracy.methods.method import Method
from assay.accuracy.predictions import AccuracyReference, LabelledPredictions, Predictions
from assay.statistics import intervals
from assay.volatility.certainty import Doubles


class MeanScore(Method):
    """Guesses for each row, by a score in [0, 1], whether it is right, and takes the mean.

    The mean score on the reference is off by `shift_`, which is added in operation (unless a method trusts
    its scores as they are). The interval is normal: if in operation the errors of the scores vary as they do
    on the reference, the estimate has variance Var(right - score) (1 / n + 1 / N).
    """

    corrected: ClassVar[bool] = True

    def fit(self, reference: AccuracyReference) -> Self:
        labelled = reference.labelled
        self._learn(labelled)
        errors = labelled.correct - self.scores(labelled.predictions)
        shift = float(errors.mean())
        self.shift_ = shift if self.corrected else 0.0
        # One more row, as wrong as can be, so that a reference without errors is not mistaken for certainty.
        self.variance_ = (float(((errors - shift) ** 2).sum()) + 1) / len(errors)
        self.reference_rows_ = len(errors)
        return self

    def _learn(self, reference: LabelledPredictions) -> None:
        """Learn what the scores need besides the row; most need nothing."""

    @abstractmethod
    def scores(self, predictions: Predictions) -> Doubles:
        """How likely each row is right."""

    def sums(self, predictions: Predictions) -> Doubles:
        return np.array([self.scores(predictions).sum()])

    def interval(self, sums: Doubles, rows: int, level: float) -> tuple[float, float, float]:
        variance = self.variance_ * (1 / self.reference_rows_ + 1 / rows)
        return normal_interval(float(sums[0]) / rows + self.shift_, variance, level)


def normal_interval(value: float, variance: float, level: float) -> tuple[float, float, float]:
    """value ± z deviations, cut to [0, 1]."""
    lower, upper = intervals.normal_interval(value, variance**0.5, level, smallest=0.0, largest=1.0)
    return min(max(value, 0.0), 1.0), lower, upper
