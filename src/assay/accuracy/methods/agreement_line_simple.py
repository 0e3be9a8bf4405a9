"""ALine-S: the line of the agreements, applied to the accuracy (Baek et al. 2022)."""

import numpy as np

from assay.accuracy.methods.agreement_line import AgreementLine
from assay.storage import storable
from assay.volatility.certainty import Doubles


@storable("accuracy.methods.AgreementLineSimple")
class AgreementLineSimple(AgreementLine):
    """probit(accuracy after) = slope x probit(accuracy before) + intercept (ALine-S of the paper)."""

    name = "agreement on the line (ALine-S)"
    assumption = "accuracy and agreement of the networks lie on one line before and after the shift"

    def _probit(self, x: Doubles, y: Doubles, accuracies: Doubles, slope: Doubles) -> Doubles:
        intercept = y.mean(axis=1) - slope[:, 0] * x.mean(axis=1)
        return np.asarray(slope[:, 0] * accuracies[:, 0] + intercept)
