"""Agreement of two networks (Jiang et al. 2022; Baek et al. 2022): where they differ, one is wrong."""

import numpy as np

from assay.accuracy.methods.method import MeanScore
from assay.accuracy.predictions import Predictions
from assay.errors import InputError
from assay.storage import storable
from assay.volatility.certainty import Doubles


@storable("accuracy.methods.Agreement")
class Agreement(MeanScore):
    """Reference accuracy less the fall in agreement with another network."""

    name = "agreement of two networks"
    assumption = "accuracy falls by as much as agreement does: the two networks do not err alike"
    counted = "rows on which both agree"

    @classmethod
    def scores(cls, predictions: Predictions, parameters: Doubles) -> Doubles:
        if predictions.other is None:
            raise InputError(
                "expected the second network's predictions, got none; pass its operational Trace as other="
            )
        return np.asarray((predictions.classes == predictions.other).astype(float))
