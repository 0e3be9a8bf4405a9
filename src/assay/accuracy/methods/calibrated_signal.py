"""The parent of methods whose signal moves with accuracy but is not on its scale.

What a value means is learned from the reference and from perturbed versions of it, whose labels are known.
"""

from abc import abstractmethod
from typing import ClassVar, Self

import numpy as np
from scipy.stats import rankdata

from assay.accuracy.methods.method import Method
from assay.accuracy.predictions import AccuracyReference
from assay.errors import InputError
from assay.volatility.certainty import Doubles

LEAST_RANGE = 0.05
"""How far apart the accuracies of the teachers lie, at the least: of less, nothing can be learned."""
LEAST_CORRELATION = 0.7
"""Rank correlation of signal and accuracy over the teachers, in the direction the method claims."""
LARGEST_ERROR = 0.5
"""Error on a teacher that was left out, relative to that of the mean accuracy of the others."""


class CalibratedSignal(Method):
    """Accuracy as a monotone function of a signal, fitted over the clean and the perturbed reference sets.

    The interval: each set is predicted from all others, and `errors_` are how far off that was. In operation
    the estimate is taken to be off by no more than the `level` quantile of them (the largest, where sets are
    few). This covers shifts like the perturbations and promises nothing about others.

    Whether the signal works here is decided by the sets that taught it. It does not if their accuracies are
    within 5 points of each other; if the signal is the same on all; if its rank correlation with accuracy
    falls short of 0.7; or if predicting a set from the others is off by more than half of what their mean
    accuracy is off by. Rank correlation finds a signal that moves the wrong way or up and down; the error
    finds one that follows accuracy only loosely. Both limits were set on one network (an MLP on MNIST), where
    the signals that work had 0.85 and 0.22 or better, and the one that does not 0.53 and 0.64.
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
        self.note_ = self._flaw(signals, accuracies)
        return self

    def _flaw(self, signals: Doubles, accuracies: Doubles) -> str:
        """Why the signal does not tell the accuracy of the sets that taught it; empty where it does."""
        reach = float(np.ptp(accuracies))
        if reach < LEAST_RANGE:
            return f"taught nothing: accuracy moved by {100 * reach:.1f} points"
        if np.ptp(signals) <= 1e-9 * (1 + np.abs(signals).max()):
            return "flat: the same on all sets that taught it"
        ranks = np.corrcoef(rankdata(signals), rankdata(accuracies))[0, 1]
        correlation = float(ranks if self.rising else -ranks)
        if correlation < LEAST_CORRELATION:
            return f"does not follow accuracy (rank correlation {correlation:.2f})"
        # The mean of the others is off by count / (count - 1) times the distance from the mean of all.
        constant = np.abs(accuracies - accuracies.mean()).mean() * len(accuracies) / (len(accuracies) - 1)
        share = float(self.errors_.mean() / constant)
        return (
            f"follows accuracy loosely (error {share:.2f} of a constant's)" if share > LARGEST_ERROR else ""
        )

    def _fitted_curve(self, signals: Doubles, accuracies: Doubles) -> Doubles:
        """(2, knots): signal, ascending, and accuracy."""
        from sklearn.isotonic import IsotonicRegression

        fitted = IsotonicRegression(increasing=self.rising).fit(signals, accuracies)
        return np.stack([fitted.X_thresholds_, fitted.y_thresholds_])

    @abstractmethod
    def signal(self, sums: Doubles, rows: int) -> float:
        """The signal over `rows` rows, from their sums."""

    def interval(self, sums: Doubles, rows: int, level: float) -> tuple[float, float, float]:
        value = float(np.interp(self.signal(sums, rows), *self.curve_))
        reach = float(np.quantile(self.errors_, level, method="higher"))
        return value, max(0.0, value - reach), min(1.0, value + reach)
