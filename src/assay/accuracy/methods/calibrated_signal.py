"""The parent of methods whose signal moves with accuracy but is not on its scale.

What a value means is learned from the reference and from perturbed versions of it, whose labels are known.
"""

from abc import abstractmethod
from typing import ClassVar, Self

import numpy as np
from sklearn.isotonic import IsotonicRegression

from assay.accuracy.methods.method import Method
from assay.accuracy.predictions import AccuracyReference
from assay.errors import InputError
from assay.volatility.certainty import Doubles


class CalibratedSignal(Method):
    """Accuracy as a monotone function of a signal, fitted over the clean and the perturbed reference sets.

    The interval: each set is predicted from all others, and `errors_` are how far off that was. In operation
    the estimate is taken to be off by no more than the `level` quantile of them (the largest, where sets are
    few). This covers shifts like the perturbations and promises nothing about others.
    """

    rising: ClassVar[bool]
    """Whether accuracy rises with the signal."""

    def fit(self, reference: AccuracyReference) -> Self:
        sets = [reference.labelled, *reference.perturbed]
        if len(sets) < 3:
            raise InputError(
                f"expected at least two perturbed sets to calibrate {self.name}, got {len(sets) - 1}"
            )
        self.window_ = reference.window
        signals = np.array([self.signal(self.sums(one.predictions), len(one)) for one in sets])
        accuracies = np.array([one.correct.mean() for one in sets])
        others = ~np.eye(len(sets), dtype=bool)
        errors = [
            abs(accuracies[k] - np.interp(signals[k], *self._fitted_curve(signals[keep], accuracies[keep])))
            for k, keep in enumerate(others)
        ]
        self.errors_ = np.array(errors)
        self.curve_ = self._fitted_curve(signals, accuracies)
        return self

    def _fitted_curve(self, signals: Doubles, accuracies: Doubles) -> Doubles:
        """(2, knots): signal, ascending, and accuracy."""
        fitted = IsotonicRegression(increasing=self.rising).fit(signals, accuracies)
        return np.stack([fitted.X_thresholds_, fitted.y_thresholds_])

    @abstractmethod
    def signal(self, sums: Doubles, rows: int) -> float:
        """The signal over `rows` rows, from their sums."""

    def interval(self, sums: Doubles, rows: int, level: float) -> tuple[float, float, float]:
        value = float(np.interp(self.signal(sums, rows), *self.curve_))
        reach = float(np.quantile(self.errors_, level, method="higher"))
        return value, max(0.0, value - reach), min(1.0, value + reach)
