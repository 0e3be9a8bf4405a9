"""Agreement with other networks (Jiang et al. 2022; Baek et al. 2022): where two differ, one is wrong."""

import numpy as np

from assay.accuracy.methods.mean_score import MeanScore
from assay.accuracy.predictions import AccuracyReference, LabelledPredictions, Predictions
from assay.storage import storable
from assay.volatility.certainty import Doubles


@storable("accuracy.methods.NetworkAgreement")
class NetworkAgreement(MeanScore):
    """Reference accuracy less the fall in agreement with another network, or on average with several."""

    name = "agreement of two networks"
    assumption = "accuracy falls by as much as agreement does: the networks do not err alike"
    counted = "rows on which both agree"

    @classmethod
    def applies(cls, reference: AccuracyReference) -> bool:
        return bool(reference.labelled.predictions.others)

    def _learn(self, reference: LabelledPredictions) -> None:
        self.others_ = len(reference.predictions.others)

    def obstacle(self, predictions: Predictions) -> str:
        found = len(predictions.others)
        return (
            "" if found == self.others_ else f"needs {self.others_} other networks' predictions, got {found}"
        )

    def scores(self, predictions: Predictions) -> Doubles:
        agreements = [predictions.classes == one for one in predictions.others]
        return np.asarray(np.mean(agreements, axis=0))
