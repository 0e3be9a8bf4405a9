"""The baseline: nothing has changed."""

import numpy as np

from assay.accuracy.methods.mean_score import MeanScore
from assay.accuracy.predictions import LabelledPredictions, Predictions
from assay.storage import storable
from assay.volatility.certainty import Doubles


@storable("accuracy.methods.ReferenceAccuracy")
class ReferenceAccuracy(MeanScore):
    """The accuracy on the reference: what you assume if you do nothing."""

    name = "reference accuracy"
    assumption = "nothing has changed since the reference"
    counted = "rows"

    def _learn(self, reference: LabelledPredictions) -> None:
        self.accuracy_ = float(reference.correct.mean())

    def scores(self, predictions: Predictions) -> Doubles:
        return np.full(len(predictions), self.accuracy_)
