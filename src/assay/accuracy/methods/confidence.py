"""Estimates from the confidence (the probability of the predicted class), and the null: nothing changed."""

import numpy as np

from assay.accuracy.methods.method import MeanScore
from assay.accuracy.predictions import Labelled, Predictions
from assay.storage import storable
from assay.volatility.certainty import Doubles


@storable("accuracy.methods.ReferenceAccuracy")
class ReferenceAccuracy(MeanScore):
    """The accuracy on the reference: what a user assumes who does nothing."""

    name = "reference accuracy"
    assumption = "nothing has changed since the reference"
    counted = "rows"

    @classmethod
    def learned(cls, reference: Labelled) -> Doubles:
        return np.array([reference.correct.mean()])

    @classmethod
    def scores(cls, predictions: Predictions, parameters: Doubles) -> Doubles:
        return np.full(len(predictions), parameters[0])


@storable("accuracy.methods.AverageConfidence")
class AverageConfidence(MeanScore):
    """The mean confidence, taken at its word (Hendrycks and Gimpel 2017)."""

    name = "average confidence"
    assumption = "the network is calibrated on operational data: of rows it is 80 % sure of, 80 % are right"
    counted = "sum of confidences"
    corrected = False

    @classmethod
    def scores(cls, predictions: Predictions, parameters: Doubles) -> Doubles:
        return predictions.confidence


@storable("accuracy.methods.DifferenceOfConfidences")
class DifferenceOfConfidences(AverageConfidence):
    """Reference accuracy less the fall in mean confidence (Guillory et al. 2021)."""

    name = "difference of confidences (DoC)"
    assumption = "accuracy falls by as much as mean confidence does"
    corrected = True
