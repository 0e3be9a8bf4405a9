"""Average thresholded confidence (ATC; Garg et al. 2022): the share of rows above the score above which, on
the reference, as many rows lie as are right."""

from abc import abstractmethod

import numpy as np

from assay.accuracy.methods.method import MeanScore
from assay.accuracy.predictions import Labelled, Predictions
from assay.storage import storable
from assay.volatility.certainty import Doubles


class _Thresholded(MeanScore):
    assumption = "the score that splits off as many rows as are wrong does so in operation too"
    counted = "rows above a threshold"

    @staticmethod
    @abstractmethod
    def _certainty(predictions: Predictions) -> Doubles: ...

    @classmethod
    def learned(cls, reference: Labelled) -> Doubles:
        ordered = np.sort(cls._certainty(reference.predictions))
        wrong = len(reference) - int(reference.correct.sum())
        return np.array([ordered[wrong] if wrong < len(ordered) else np.inf])

    @classmethod
    def scores(cls, predictions: Predictions, parameters: Doubles) -> Doubles:
        return np.asarray(cls._certainty(predictions) >= parameters[0], float)


@storable("accuracy.methods.ThresholdedConfidence")
class ThresholdedConfidence(_Thresholded):
    name = "ATC, confidence"

    @staticmethod
    def _certainty(predictions: Predictions) -> Doubles:
        return predictions.confidence


@storable("accuracy.methods.ThresholdedEntropy")
class ThresholdedEntropy(_Thresholded):
    name = "ATC, negative entropy"

    @staticmethod
    def _certainty(predictions: Predictions) -> Doubles:
        return predictions.negative_entropy
