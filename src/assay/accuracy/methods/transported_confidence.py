"""Confidence optimal transport (COT; Lu et al. 2023): the confidence left once classes are as frequent as
they should be."""

import math

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from scipy.special import softmax

from assay.accuracy.methods.mean_score import MeanScore
from assay.accuracy.predictions import AccuracyReference, LabelledPredictions, Predictions
from assay.monitors.temperature_scaled import best_temperature
from assay.storage import storable
from assay.volatility.certainty import Doubles

SHORTEST, LONGEST = 100, 400
"""Rows that are transported together. The assignment of n rows takes up to n^3 steps: 2 microseconds a row at
100, 14 at 400."""
ROWS_PER_CLASS = 4
"""How many rows of a window belong to a class on average, at the least."""


@storable("accuracy.methods.TransportedConfidence")
class TransportedConfidence(MeanScore):
    """1 - W, W being the transport distance between the operational probabilities and the reference labels.

    "Predicting out-of-distribution error with confidence optimal transport" and "Characterizing
    out-of-distribution error via optimal transport" (Lu et al. 2023): one-hot labels, as frequent as on the
    reference, are moved onto the probabilities at a cost of |label - p|_inf = 1 - p_label. So every row is
    given one of the labels, such that the sum of the probabilities of the given labels is largest: average
    confidence, with a penalty on classes that are predicted too often. As in the papers, the probabilities
    are calibrated first, by a temperature.

    Where it differs from the papers: rows are transported in windows of a few hundred, all of nearly equal
    size, so that the cost grows with the number of rows and sums add up; within a window the assignment is
    exact. By chance a window has not quite the classes of the reference, and its cost is a little too high.
    The windows of the reference show by how much, and that is added.
    """

    name = "optimal transport (COT)"
    assumption = "classes are as frequent as on the reference, and confidence falls as accuracy does"
    counted = "sum of the probabilities of the labels given by transport, and rows of them above a threshold"

    @classmethod
    def applies(cls, reference: AccuracyReference) -> bool:
        window = _window(len(np.unique(reference.labelled.labels)))
        return window <= min(LONGEST, 2 * len(reference.labelled))

    def _learn(self, reference: LabelledPredictions) -> None:
        classes = reference.predictions.probabilities.shape[1]
        counts = np.bincount(reference.labels, minlength=classes)
        self.shares_ = counts / counts.sum()
        self.rows_together_ = _window(int((counts > 0).sum()))
        # Without an error nothing says how confident the network should be.
        wrong = bool((reference.correct == 0).any())
        self.temperature_ = _temperature(reference) if wrong else 1.0
        given = np.sort(self._label_probabilities(reference.predictions))
        self.cut_ = float(np.append(given, math.inf)[len(reference) - int(reference.correct.sum())])

    def obstacle(self, predictions: Predictions) -> str:
        fewest = self.rows_together_ // 2
        return "" if len(predictions) >= fewest else f"needs at least {fewest} rows at a time"

    def scores(self, predictions: Predictions) -> Doubles:
        return self._label_probabilities(predictions)

    def sums(self, predictions: Predictions) -> Doubles:
        given = self._label_probabilities(predictions)
        return np.array([given.sum(), (given >= self.cut_).sum()])

    def _label_probabilities(self, predictions: Predictions) -> Doubles:
        """The calibrated probability of the label that each row is given."""
        calibrated = softmax(predictions.centred_logits / self.temperature_, axis=1)
        windows = max(1, round(len(calibrated) / self.rows_together_))
        return np.concatenate([self._assigned(part) for part in np.array_split(calibrated, windows)])

    def _assigned(self, window: Doubles) -> Doubles:
        """Each row's probability of its label, in the best assignment; labels are rounded to whole rows."""
        places = (np.arange(len(window)) + 0.5) / len(window)
        labels = np.searchsorted(np.cumsum(self.shares_)[:-1], places, side="right")
        return np.asarray(window[:, labels][linear_sum_assignment(window[:, labels], maximize=True)])


def _window(classes: int) -> int:
    return max(SHORTEST, ROWS_PER_CLASS * classes)


def _temperature(reference: LabelledPredictions) -> float:
    logits = torch.from_numpy(reference.predictions.centred_logits)
    return best_temperature(logits, torch.from_numpy(reference.labels))
