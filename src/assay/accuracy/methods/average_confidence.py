"""The mean confidence, taken at face value (Hendrycks and Gimpel 2017)."""

from assay.accuracy.methods.mean_score import MeanScore
from assay.accuracy.predictions import Predictions
from assay.storage import storable
from assay.volatility.certainty import Doubles


@storable("accuracy.methods.AverageConfidence")
class AverageConfidence(MeanScore):
    """The mean probability of the predicted class."""

    name = "average confidence"
    assumption = "the network is calibrated on operational data: of rows it is 80 % sure of, 80 % are right"
    counted = "sum of confidences"
    corrected = False

    def scores(self, predictions: Predictions) -> Doubles:
        return predictions.confidence
