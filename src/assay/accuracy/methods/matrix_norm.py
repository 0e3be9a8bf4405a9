"""MaNo: the norm of the matrix of normalised logits (Xie et al., NeurIPS 2024)."""

from typing import Self

import numpy as np

from assay.accuracy.methods.calibrated_signal import CalibratedSignal
from assay.accuracy.predictions import AccuracyReference, Predictions
from assay.storage import storable
from assay.volatility.certainty import Doubles

ORDER = 4
"""p of the norm, as in the paper."""
CONFIDENT = 5.0
"""The paper's eta: above this mean divergence from the uniform distribution the softmax is trusted."""


@storable("accuracy.methods.MatrixNorm")
class MatrixNorm(CalibratedSignal):
    """(sum of q^4 / NK)^(1/4) (Eq. 5), q being the logits normalised by softrun (Eq. 6).

    Softrun is the softmax for a set on which the network is confident, and otherwise its second-order Taylor
    form (1 + z + z^2 / 2) / sum, which does not amplify the errors of uncalibrated logits. Which one it is
    depends on the whole set: the mean over rows and classes of -log softmax, compared with 5. Both norms are
    summed, so that the choice is made where the sums come together.

    Where it differs from the paper: the logits of a row are first moved to a mean of zero. The softmax does
    not see that, the Taylor form does; so probabilities are enough, and a constant added to all logits of a
    row changes nothing. Like the paper's text and unlike the authors' code, the smallest entry of a row is
    not subtracted.
    """

    name = "matrix norm (MaNo)"
    assumption = "the shift moves MaNo and accuracy together as the perturbations of the reference do"
    counted = "sums of fourth powers, and of log-probabilities"
    rising = True

    def fit(self, reference: AccuracyReference) -> Self:
        self.classes_ = reference.labelled.predictions.probabilities.shape[1]
        return super().fit(reference)

    def sums(self, predictions: Predictions) -> Doubles:
        logits, softmax = predictions.centred_logits, predictions.probabilities
        taylor = 1 + logits + logits**2 / 2
        taylor /= taylor.sum(axis=1, keepdims=True)
        # The mean over classes of -log softmax: that of the largest, plus how far it is above the mean.
        divergence = logits.max(axis=1) - np.log(predictions.confidence)
        return np.array([(softmax**ORDER).sum(), (taylor**ORDER).sum(), divergence.sum()])

    def signal(self, sums: Doubles, rows: int) -> float:
        softmax, taylor, divergence = sums.tolist()
        total = softmax if divergence / rows > CONFIDENT else taylor
        return float((total / (rows * self.classes_)) ** (1 / ORDER))
