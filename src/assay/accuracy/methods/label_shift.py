"""Label-shift correction (BBSE; Lipton, Wang and Smola 2018): classes became more or less frequent."""

from typing import Self

import numpy as np

from assay.accuracy.methods.mean_score import normal_interval
from assay.accuracy.methods.method import Method
from assay.accuracy.predictions import AccuracyReference, Predictions
from assay.storage import storable
from assay.volatility.certainty import Doubles


@storable("accuracy.methods.LabelShift")
class LabelShift(Method):
    """Solves C w = m for how much more frequent each class has become.

    C is the joint share of predicted and true class on the reference, m the share of each predicted class in
    operation; the accuracy is then the sum of w_j C_jj. The interval follows from the first-order effect that
    one reference row and one operational row have on the error (the delta method), so that counts suffice.
    """

    name = "label shift (BBSE)"
    assumption = "only how frequent the classes are has changed, not how each of them looks"
    counted = "rows per predicted class"

    def fit(self, reference: AccuracyReference) -> Self:
        predictions, labels = reference.labelled.predictions, reference.labelled.labels
        classes = predictions.probabilities.shape[1]
        cells = np.bincount(predictions.classes * classes + labels, minlength=classes**2)
        # Reference rows by predicted (first) and true class.
        self.confusion_ = cells.reshape(classes, classes).astype(float)
        return self

    def sums(self, predictions: Predictions) -> Doubles:
        return np.bincount(predictions.classes, minlength=len(self.confusion_)).astype(float)

    def interval(self, sums: Doubles, rows: int, level: float) -> tuple[float, float, float]:
        joint, share = self.confusion_ / self.confusion_.sum(), sums / rows
        # The pseudo-inverse: a class absent from the reference, or never predicted, has no weight of its own.
        inverse = np.linalg.pinv(joint, rcond=1e-6)
        weights = np.clip(inverse @ share, 0, None)
        weights /= max(float(weights @ joint.sum(axis=0)), 1e-12)
        right = np.diag(joint)
        pull = inverse.T @ right
        reference = np.diag(weights) - np.outer(pull, weights)
        operation = np.eye(len(joint)) - pull[:, None]
        variance = _variance(reference, joint) / self.confusion_.sum()
        variance += _variance(operation, joint * weights) / rows
        return normal_interval(float(weights @ right), variance, level)


def _variance(values: Doubles, shares: Doubles) -> float:
    mean = float((values * shares).sum())
    return float(((values - mean) ** 2 * shares).sum())
