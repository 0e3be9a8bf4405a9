"""The nuclear norm for classes that are not equally frequent."""

from typing import Self

import numpy as np

from assay.accuracy.methods.nuclear_norm import NuclearNorm
from assay.accuracy.predictions import AccuracyReference
from assay.storage import storable
from assay.volatility.certainty import Doubles


@storable("accuracy.methods.WeightedNuclearNorm")
class WeightedNuclearNorm(NuclearNorm):
    """The nuclear norm of P diag(sqrt(share of each class on the reference)), divided by sqrt(N).

    Deng et al. (2023) show that the plain norm is biased where classes are unbalanced: it is largest for
    predictions spread evenly over all classes, so that noise which scatters predictions over rare or absent
    classes raises it. With these weights a set of sure predictions scores the sum over classes of
    sqrt(expected share x predicted share), the Bhattacharyya coefficient, which is largest, at 1, where
    classes are predicted as often as they occur. A class that is absent from the reference has no weight.
    If the classes are balanced, this is the plain norm.

    The weights are ours; the paper's own variant for imbalance has another form.
    """

    name = "nuclear norm, weighted"
    assumption = (
        "the shift moves the weighted nuclear norm and accuracy together as the perturbations do, and "
        "classes are as frequent as on the reference"
    )

    @property
    def sums_name(self) -> str:
        return NuclearNorm.name

    def fit(self, reference: AccuracyReference) -> Self:
        classes = reference.labelled.predictions.probabilities.shape[1]
        counts = np.bincount(reference.labelled.labels, minlength=classes)
        self.shares_ = counts / counts.sum()
        return super().fit(reference)

    def signal(self, sums: Doubles, rows: int) -> float:
        roots = np.sqrt(self.shares_)
        singular = np.sqrt(np.clip(np.linalg.eigvalsh(sums * np.outer(roots, roots)), 0, None))
        return float(singular.sum() / np.sqrt(rows))
