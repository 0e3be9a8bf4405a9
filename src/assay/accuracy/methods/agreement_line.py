"""Agreement on the line (Baek, Jiang, Raghunathan and Kolter 2022): the parent of its two estimators.

"Agreement-on-the-line: predicting the performance of neural networks under distribution shift". Over several
networks, accuracy before and after a shift lies on a line once both are put through the probit (the inverse
of the normal distribution function), and the agreement of pairs of them lies on a line of the same slope and
intercept. Agreement needs no labels.
"""

from abc import abstractmethod
from itertools import combinations
from typing import Self

import numpy as np
from scipy.special import ndtr, ndtri

from assay.accuracy.methods.mean_score import normal_interval
from assay.accuracy.methods.method import Method
from assay.accuracy.predictions import AccuracyReference, Predictions
from assay.volatility.certainty import Doubles

FEWEST_NETWORKS = 3
"""Two have one agreement, and through one point goes every line."""
ON_THE_LINE = 0.95
"""The R^2 from which the paper speaks of agreement on the line."""
DRAWS = 1000
_FLAT = 1e-12


class AgreementLine(Method):
    """Pairs of networks that agree, as probits, before (x) and after (y) the shift: y = slope x + intercept.

    Sums are the counts of rows on which a pair agrees, and for each two pairs, on which both do: with these,
    the interval has the variances and covariances of all agreements. It comes from 1,000 draws of what the
    agreements and accuracies might have been, plus the chance of the operational rows themselves.
    """

    counted = "rows on which pairs of networks agree"

    @classmethod
    def applies(cls, reference: AccuracyReference) -> bool:
        return len(reference.labelled.predictions.others) + 1 >= FEWEST_NETWORKS

    @property
    def sums_name(self) -> str:
        return "agreement on the line"

    def fit(self, reference: AccuracyReference) -> Self:
        labelled = reference.labelled
        classes = [labelled.predictions.classes, *labelled.predictions.others]
        self.networks_ = len(classes)
        right = np.stack([labelled.labels == one for one in classes], axis=1).astype(float)
        known = np.column_stack([_agreements(labelled.predictions), right])
        self.moments_ = known.T @ known
        self.reference_rows_ = len(labelled)
        return self

    def obstacle(self, predictions: Predictions) -> str:
        found = len(predictions.others)
        if found == self.networks_ - 1:
            return ""
        return f"needs the predictions of {self.networks_ - 1} other networks as other=, got {found}"

    def sums(self, predictions: Predictions) -> Doubles:
        agreements = _agreements(predictions)
        return np.asarray(agreements.T @ agreements)

    def interval(self, sums: Doubles, rows: int, level: float) -> tuple[float, float, float]:
        before, after = self._shares(sums, rows)
        value = float(self._accuracy(before[None], after[None], rows)[0])
        generator = np.random.default_rng(0)
        drawn_before = _draws(self.moments_, self.reference_rows_, generator)
        drawn = self._accuracy(drawn_before, _draws(sums, rows, generator), rows)
        variance = float(drawn.var()) + value * (1 - value) / rows
        return normal_interval(value, variance, level)

    def doubt(self, sums: Doubles, rows: int) -> str:
        before, after = self._shares(sums, rows)
        x, y = _probits(before[: len(after)], self.reference_rows_), _probits(after, rows)
        if x.std() < _FLAT or y.std() < _FLAT:
            return "all pairs agree alike: no line"
        found = float(np.corrcoef(x, y)[0, 1]) ** 2
        return "" if found >= ON_THE_LINE else f"agreement is not on a line (R² {found:.2f})"

    def _shares(self, sums: Doubles, rows: int) -> tuple[Doubles, Doubles]:
        return np.diag(self.moments_) / self.reference_rows_, np.diag(sums) / rows

    def _accuracy(self, before: Doubles, after: Doubles, rows: int) -> Doubles:
        """Of the first network, for each row of shares: agreements (and accuracies) before, and after."""
        pairs = after.shape[1]
        x, y = _probits(before[:, :pairs], self.reference_rows_), _probits(after, rows)
        around = x - x.mean(axis=1, keepdims=True)
        spread = (around**2).sum(axis=1)
        # Pairs that all agree alike do not tell the slope; it is one where nothing changed.
        slope = np.where(spread > _FLAT, (around * y).sum(axis=1) / np.maximum(spread, _FLAT), 1.0)[:, None]
        accuracies = _probits(before[:, pairs:], self.reference_rows_)
        return np.asarray(ndtr(self._probit(x, y, accuracies, slope)))

    @abstractmethod
    def _probit(self, x: Doubles, y: Doubles, accuracies: Doubles, slope: Doubles) -> Doubles:
        """The probit of the first network's accuracy after the shift; all arguments are probits."""


def pairs_of(networks: int) -> list[tuple[int, int]]:
    return list(combinations(range(networks), 2))


def _agreements(predictions: Predictions) -> Doubles:
    """(N, pairs): 1 where both networks of a pair predict the same class."""
    classes = [predictions.classes, *predictions.others]
    return np.stack([classes[i] == classes[j] for i, j in pairs_of(len(classes))], axis=1).astype(float)


def _probits(shares: Doubles, rows: int) -> Doubles:
    """A share of 0 or 1 counts as half a row away from it, where the probit is finite."""
    edge = 0.5 / rows
    return np.asarray(ndtri(np.clip(shares, edge, 1 - edge)))


def _draws(moments: Doubles, rows: int, generator: np.random.Generator) -> Doubles:
    """Shares as they might have been in other rows: normal, with the covariance of the rows that were."""
    shares = np.diag(moments) / rows
    covariance = (moments / rows - np.outer(shares, shares)) / rows
    return generator.multivariate_normal(shares, covariance, DRAWS, method="eigh")
