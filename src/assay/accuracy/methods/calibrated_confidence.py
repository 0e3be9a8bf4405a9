"""Confidence-based performance estimation (CBPE, as NannyML calls it): the mean of calibrated confidences."""

import numpy as np

from assay.accuracy.methods.mean_score import MeanScore
from assay.accuracy.predictions import LabelledPredictions, Predictions
from assay.storage import storable
from assay.volatility.certainty import Doubles


@storable("accuracy.methods.CalibratedConfidence")
class CalibratedConfidence(MeanScore):
    """The confidence mapped to the share of right rows at that confidence, by isotonic regression.

    One map for all classes: with the few hundred rows per class that a reference usually has, a map for each
    class would mostly fit noise.
    """

    name = "calibrated confidence (CBPE)"
    assumption = "at a given confidence as many rows are right in operation as on the reference"
    counted = "sum of calibrated confidences"
    corrected = False

    def _learn(self, reference: LabelledPredictions) -> None:
        from sklearn.isotonic import IsotonicRegression

        fitted = IsotonicRegression(y_min=0.0, y_max=1.0).fit(
            reference.predictions.confidence, reference.correct
        )
        self.curve_ = np.stack([fitted.X_thresholds_, fitted.y_thresholds_])

    def scores(self, predictions: Predictions) -> Doubles:
        return np.asarray(np.interp(predictions.confidence, *self.curve_))
