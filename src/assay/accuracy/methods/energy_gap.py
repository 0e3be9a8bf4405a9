"""Meta-distribution energy (MDE; Peng et al., "Energy-based automated model evaluation", ICLR 2024)."""

from typing import Self

import numpy as np

from assay.accuracy.methods.calibrated_signal import CalibratedSignal
from assay.accuracy.predictions import AccuracyReference, Predictions
from assay.storage import storable
from assay.volatility.certainty import Doubles

_LARGEST = 700.0
"""Of an exponent: e^700 still fits into a double."""


@storable("accuracy.methods.EnergyGap")
class EnergyGap(CalibratedSignal):
    """log(mean of e^Z) - mean of Z, over the energies Z = -log sum e^logit of all rows.

    The paper's MDE is -1/N sum_n log(e^Z_n / sum_i e^Z_i) = log(sum of e^Z) - mean of Z, at temperature 1.
    Where it differs: log N is subtracted, so that sets of different sizes can be compared. The energies are
    taken relative to their mean on the reference, which cancels out and keeps the exponentials finite.
    """

    name = "meta-distribution energy (MDE)"
    assumption = "the shift moves MDE and accuracy together as the perturbations of the reference do"
    counted = "sums of energies and of their exponentials"
    rising = True

    @classmethod
    def applies(cls, reference: AccuracyReference) -> bool:
        sets = [reference.labelled, *reference.perturbed]
        return all(one.predictions.logits is not None for one in sets)

    def fit(self, reference: AccuracyReference) -> Self:
        self.centre_ = float(_energies(reference.labelled.predictions).mean())
        return super().fit(reference)

    def obstacle(self, predictions: Predictions) -> str:
        return "" if predictions.logits is not None else "needs logits; probabilities do not tell the energy"

    def sums(self, predictions: Predictions) -> Doubles:
        energies = _energies(predictions) - self.centre_
        return np.array([energies.sum(), np.exp(np.minimum(energies, _LARGEST)).sum()])

    def signal(self, sums: Doubles, rows: int) -> float:
        return float(np.log(sums[1] / rows) - sums[0] / rows)


def _energies(predictions: Predictions) -> Doubles:
    """-log sum e^logit = log softmax - logit, of whichever class; the likeliest has the exact logarithm."""
    largest = np.asarray(predictions.logits).max(axis=1).astype(np.float64)
    return np.asarray(np.log(predictions.confidence) - largest)
