"""Agreement of two networks (Jiang et al. 2022; Baek et al. 2022): where they differ, one is wrong."""

import numpy as np

from assay.accuracy.methods.mean_score import MeanScore
from assay.accuracy.predictions import AccuracyReference, Predictions
from assay.errors import InputError
from assay.storage import storable
from assay.volatility.certainty import Doubles


@storable("accuracy.methods.NetworkAgreement")
class NetworkAgreement(MeanScore):
    """Reference accuracy less the fall in agreement with another network."""

    name = "agreement of two networks"
    assumption = "accuracy falls by as much as agreement does: the two networks do not err alike"
    counted = "rows on which both agree"

    @classmethod
    def applies(cls, reference: AccuracyReference) -> bool:
        return reference.labelled.predictions.other is not None

    def scores(self, predictions: Predictions) -> Doubles:
        if predictions.other is None:
            raise InputError(
                "expected the second network's predictions, got none; pass its operational Trace as other="
            )
        return np.asarray((predictions.classes == predictions.other).astype(float))
