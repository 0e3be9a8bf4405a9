"""Confidence optimal transport with a threshold (COTT; Lu et al. 2023)."""

import numpy as np

from assay.accuracy.methods.transported_confidence import TransportedConfidence
from assay.accuracy.predictions import Predictions
from assay.storage import storable
from assay.volatility.certainty import Doubles


@storable("accuracy.methods.ThresholdedTransport")
class ThresholdedTransport(TransportedConfidence):
    """The share of rows whose transport is cheap: on the reference, as many rows are as are right.

    "Characterizing out-of-distribution error via optimal transport" (Lu et al., NeurIPS 2023), COTT with
    maximum confidence: to COT as ATC is to average confidence.
    """

    name = "optimal transport, thresholded (COTT)"
    assumption = (
        "classes are as frequent as on the reference, and the cost that splits off as many rows as are wrong "
        "does so in operation too"
    )

    @property
    def sums_name(self) -> str:
        return TransportedConfidence.name

    def scores(self, predictions: Predictions) -> Doubles:
        return np.asarray(self._label_probabilities(predictions) >= self.cut_, float)

    def interval(self, sums: Doubles, rows: int, level: float) -> tuple[float, float, float]:
        return super().interval(sums[1:], rows, level)
