"""ALine-D: accuracies that fit every pair's agreement (Baek et al. 2022)."""

import numpy as np

from assay.accuracy.methods.agreement_line import AgreementLine, pairs_of
from assay.storage import storable
from assay.volatility.certainty import Doubles


@storable("accuracy.methods.AgreementLineDirect")
class AgreementLineDirect(AgreementLine):
    """The accuracies of all networks as the least-squares solution of one equation per pair (ALine-D).

    For networks i and j, with probits throughout: (a'_i + a'_j) / 2 = y_ij + slope ((a_i + a_j) / 2 - x_ij),
    a being accuracies before and a' after. A pair whose own agreement lies off the line corrects for it.
    """

    name = "agreement on the line (ALine-D)"
    assumption = (
        "accuracy and agreement lie on lines of one slope, and a pair is as far off its line as before"
    )

    def _probit(self, x: Doubles, y: Doubles, accuracies: Doubles, slope: Doubles) -> Doubles:
        networks = accuracies.shape[1]
        halves = np.zeros((x.shape[1], networks))
        for row, pair in enumerate(pairs_of(networks)):
            halves[row, pair] = 0.5
        known = y + slope * (accuracies @ halves.T - x)
        return np.asarray(known @ np.linalg.pinv(halves)[0])
