"""Dispersion: how far apart the predicted classes lie (Xie et al., NeurIPS 2023)."""

from typing import Self

import numpy as np
from scipy import sparse

from assay.accuracy.methods.calibrated_signal import CalibratedSignal
from assay.accuracy.predictions import AccuracyReference, Predictions
from assay.storage import storable
from assay.volatility.certainty import Doubles
from assay.volatility.probabilities import Array


@storable("accuracy.methods.Dispersion")
class Dispersion(CalibratedSignal):
    """log of sum_j (n_j / N) |m_j - m|^2 / (K - 1): m_j is the mean of the n_j rows predicted as class j.

    "On the importance of feature separability in predicting out-of-distribution error" (Xie et al. 2023),
    its dispersion score. The rows are penultimate features where the reference and all its perturbed versions
    have them, otherwise probabilities. Where it differs from the paper: shares n_j / N instead of counts, so
    that sets of different sizes can be compared.
    """

    name = "dispersion"
    assumption = "the shift moves dispersion and accuracy together as the perturbations of the reference do"
    counted = "rows per predicted class, and the sum of their features (or probabilities)"
    rising = True

    def fit(self, reference: AccuracyReference) -> Self:
        sets = [reference.labelled, *reference.perturbed]
        self.from_features_ = all(one.predictions.features is not None for one in sets)
        return super().fit(reference)

    def obstacle(self, predictions: Predictions) -> str:
        if not self.from_features_ or predictions.features is not None:
            return ""
        return "needs penultimate features, which taught it; observe with layers='penultimate'"

    def sums(self, predictions: Predictions) -> Doubles:
        """(K, 1 + width): rows and the sum of their features, for each predicted class."""
        rows: Array = predictions.probabilities
        if self.from_features_ and predictions.features is not None:
            rows = predictions.features
        count, classes = predictions.probabilities.shape
        places = predictions.classes, np.arange(count)
        chosen = sparse.csr_array((np.ones(count), places), shape=(classes, count))
        return np.column_stack([np.bincount(predictions.classes, minlength=classes), chosen @ rows])

    def signal(self, sums: Doubles, rows: int) -> float:
        counts, totals = sums[:, 0], sums[:, 1:]
        means = totals / np.maximum(counts, 1)[:, None]
        apart = ((means - totals.sum(axis=0) / rows) ** 2).sum(axis=1)
        between = float(counts @ apart) / rows / (len(sums) - 1)
        # Where all rows are predicted alike nothing is apart: the smallest value rather than minus infinity.
        return float(np.log(max(between, np.finfo(np.float64).tiny)))
