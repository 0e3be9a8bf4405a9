"""Average thresholded confidence (ATC) by the probability of the predicted class."""

from assay.accuracy.methods.above_cut import AboveCut
from assay.accuracy.predictions import Predictions
from assay.storage import storable
from assay.volatility.certainty import Doubles


@storable("accuracy.methods.ThresholdedConfidence")
class ThresholdedConfidence(AboveCut):
    name = "ATC, confidence"

    def certainty(self, predictions: Predictions) -> Doubles:
        return predictions.confidence
