"""Volatility in Certainty as a measure of accuracy."""

import numpy as np

from assay.accuracy.methods.calibrated_signal import CalibratedSignal
from assay.accuracy.predictions import AccuracyReference, Predictions
from assay.storage import storable
from assay.volatility.certainty import FEWEST, Doubles
from assay.volatility.comparison import window_log_vcs


@storable("accuracy.methods.CalibratedVolatility")
class CalibratedVolatility(CalibratedSignal):
    """Mean log VC over windows of one size, since VC depends on it."""

    name = "calibrated log VC"
    assumption = "the shift moves log VC and accuracy together as the perturbations of the reference do"
    counted = "sum and number of the log VC of whole windows"
    rising = False

    @classmethod
    def applies(cls, reference: AccuracyReference) -> bool:
        return reference.window >= FEWEST

    def sums(self, predictions: Predictions) -> Doubles:
        log_vcs = window_log_vcs(predictions.margins, self.window_)
        return np.array([log_vcs.sum(), len(log_vcs)])

    def signal(self, sums: Doubles, rows: int) -> float:
        return float(sums[0] / sums[1]) if sums[1] else float("nan")
