"""The parent of average thresholded confidence (ATC; Garg et al. 2022), whatever certainty it reads."""

from abc import abstractmethod

import numpy as np

from assay.accuracy.methods.mean_score import MeanScore
from assay.accuracy.predictions import LabelledPredictions, Predictions
from assay.volatility.certainty import Doubles


class AboveCut(MeanScore):
    """The share of rows above a cut: on the reference, as many rows lie above it as are right."""

    assumption = "the score that splits off as many rows as are wrong does so in operation too"
    counted = "rows above a threshold"

    @abstractmethod
    def certainty(self, predictions: Predictions) -> Doubles:
        """How sure the network is of each row."""

    def _learn(self, reference: LabelledPredictions) -> None:
        ordered = np.sort(self.certainty(reference.predictions))
        wrong = len(reference) - int(reference.correct.sum())
        self.cut_ = float(ordered[wrong]) if wrong < len(ordered) else float("inf")

    def scores(self, predictions: Predictions) -> Doubles:
        return np.asarray(self.certainty(predictions) >= self.cut_, float)
