"""The nuclear norm of the matrix of probabilities (Deng et al. 2023): high if they are sure and diverse."""

import numpy as np

from assay.accuracy.methods.calibrated_signal import CalibratedSignal
from assay.accuracy.predictions import Predictions
from assay.storage import storable
from assay.volatility.certainty import Doubles


@storable("accuracy.methods.NuclearNorm")
class NuclearNorm(CalibratedSignal):
    """From the K x K Gram matrix, whose eigenvalues are the squared singular values: N x K x K steps and no
    singular value decomposition of N rows. Divided by its largest value, sqrt(N min(N, K)).
    """

    name = "nuclear norm"
    assumption = "the shift moves nuclear norm and accuracy together as the perturbations of the reference do"
    counted = "K x K Gram matrix of the probabilities"
    rising = True

    def sums(self, predictions: Predictions) -> Doubles:
        return np.asarray(predictions.probabilities.T @ predictions.probabilities)

    def signal(self, sums: Doubles, rows: int) -> float:
        singular = np.sqrt(np.clip(np.linalg.eigvalsh(sums), 0, None))
        return float(singular.sum() / np.sqrt(rows * min(rows, len(sums))))
