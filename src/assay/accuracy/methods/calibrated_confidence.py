"""Confidence-based performance estimation (CBPE, as NannyML calls it): the mean of calibrated confidences."""

import numpy as np
from sklearn.isotonic import IsotonicRegression

from assay.accuracy.methods.method import MeanScore
from assay.accuracy.predictions import Labelled, Predictions
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

    @classmethod
    def learned(cls, reference: Labelled) -> Doubles:
        fitted = IsotonicRegression(y_min=0.0, y_max=1.0).fit(
            reference.predictions.confidence, reference.correct
        )
        return np.stack([fitted.X_thresholds_, fitted.y_thresholds_])

    @classmethod
    def scores(cls, predictions: Predictions, parameters: Doubles) -> Doubles:
        return np.asarray(np.interp(predictions.confidence, parameters[0], parameters[1]))
