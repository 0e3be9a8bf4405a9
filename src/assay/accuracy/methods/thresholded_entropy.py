"""Average thresholded confidence (ATC) by negative entropy: all classes count, not the first alone."""

from assay.accuracy.methods.above_cut import AboveCut
from assay.accuracy.predictions import Predictions
from assay.storage import storable
from assay.volatility.certainty import Doubles


@storable("accuracy.methods.ThresholdedEntropy")
class ThresholdedEntropy(AboveCut):
    name = "ATC, negative entropy"

    def certainty(self, predictions: Predictions) -> Doubles:
        return predictions.negative_entropy
