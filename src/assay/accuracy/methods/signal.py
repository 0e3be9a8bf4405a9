"""Signals that fall or rise with accuracy but are not on its scale: log VC and the nuclear norm. What a value
means is learnt from the reference and from perturbed versions of it, whose labels are known."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from sklearn.isotonic import IsotonicRegression

from assay.accuracy.methods.method import Method
from assay.accuracy.predictions import Labelled, Predictions
from assay.errors import InputError
from assay.storage import storable
from assay.volatility.certainty import Doubles
from assay.volatility.comparison import window_log_vcs


@dataclass
class CalibratedSignal(Method):
    """Accuracy as a monotone function of a signal, fitted over the clean and the perturbed reference sets.

    The interval: each set is predicted from all others, and `errors` are how far off that was. In operation
    the estimate is taken to be off by no more than the `level` quantile of them (the largest, where sets are
    few). This covers shifts like the perturbations and promises nothing about others.
    """

    curve: Doubles
    """(2, knots): signal, ascending, and accuracy."""
    errors: Doubles
    parameters: Doubles

    rising: ClassVar[bool]
    """Whether accuracy rises with the signal."""

    @classmethod
    def fit(cls, sets: Sequence[Labelled], parameters: Doubles) -> Self:
        if len(sets) < 3:
            raise InputError(
                f"expected at least two perturbed sets to calibrate {cls.name}, got {len(sets) - 1}"
            )
        signals = np.array([cls._signal(cls._sums(one.predictions, parameters), len(one)) for one in sets])
        accuracies = np.array([one.correct.mean() for one in sets])
        others = ~np.eye(len(sets), dtype=bool)
        errors = [
            abs(accuracies[k] - np.interp(signals[k], *cls._curve(signals[keep], accuracies[keep])))
            for k, keep in enumerate(others)
        ]
        return cls(cls._curve(signals, accuracies), np.array(errors), parameters)

    @classmethod
    def _curve(cls, signals: Doubles, accuracies: Doubles) -> Doubles:
        fitted = IsotonicRegression(increasing=cls.rising).fit(signals, accuracies)
        return np.stack([fitted.X_thresholds_, fitted.y_thresholds_])

    def sums(self, predictions: Predictions) -> Doubles:
        return self._sums(predictions, self.parameters)

    def interval(self, sums: Doubles, rows: int, level: float) -> tuple[float, float, float]:
        value = float(np.interp(self._signal(sums, rows), *self.curve))
        reach = float(np.quantile(self.errors, level, method="higher"))
        return value, max(0.0, value - reach), min(1.0, value + reach)

    @staticmethod
    @abstractmethod
    def _sums(predictions: Predictions, parameters: Doubles) -> Doubles: ...

    @staticmethod
    @abstractmethod
    def _signal(sums: Doubles, rows: int) -> float: ...


@storable("accuracy.methods.CalibratedVolatility")
class CalibratedVolatility(CalibratedSignal):
    """Mean log VC over windows of one size (VC depends on it); parameters: that size."""

    name = "calibrated log VC"
    assumption = "the shift moves log VC and accuracy together as the perturbations of the reference do"
    counted = "sum and number of the log VC of whole windows"
    rising = False

    @staticmethod
    def _sums(predictions: Predictions, parameters: Doubles) -> Doubles:
        log_vcs = window_log_vcs(predictions.margins, int(parameters[0]))
        return np.array([log_vcs.sum(), len(log_vcs)])

    @staticmethod
    def _signal(sums: Doubles, rows: int) -> float:
        return float(sums[0] / sums[1]) if sums[1] else float("nan")


@storable("accuracy.methods.NuclearNorm")
class NuclearNorm(CalibratedSignal):
    """The nuclear norm of the N x K matrix of probabilities (Deng et al. 2023), high if sure and diverse.

    From the K x K Gram matrix, whose eigenvalues are the squared singular values: N x K x K steps and no
    singular value decomposition of N rows. Divided by its largest value, sqrt(N min(N, K)).
    """

    name = "nuclear norm"
    assumption = "the shift moves nuclear norm and accuracy together as the perturbations of the reference do"
    counted = "K x K Gram matrix of the probabilities"
    rising = True

    @staticmethod
    def _sums(predictions: Predictions, parameters: Doubles) -> Doubles:
        return np.asarray(predictions.probabilities.T @ predictions.probabilities)

    @staticmethod
    def _signal(sums: Doubles, rows: int) -> float:
        singular = np.sqrt(np.clip(np.linalg.eigvalsh(sums), 0, None))
        return float(singular.sum() / np.sqrt(rows * min(rows, len(sums))))
