"""Importance weighting (PAPE, NannyML; Bialek et al. 2024): calibrated on reference rows like those in
operation."""

from typing import Self

import numpy as np

from assay.accuracy.methods.mean_score import normal_interval
from assay.accuracy.methods.method import Method
from assay.accuracy.predictions import AccuracyReference, Predictions
from assay.volatility.certainty import Doubles

FOLDS = 5
FEWEST_ALIKE = 30
"""Reference rows, as many as the weights are worth (Kish 1965), below which the calibration is a guess."""
SMALLEST_LOGIT = -30.0
"""Of a centred logit: the difference between 10^-13 and zero is no difference between rows."""


class ImportanceWeighting(Method):
    """The mean of calibrated confidences, where calibration weighs each reference row by how much more often
    such rows occur in operation.

    "Estimating model performance under covariate shift without labels" (Bialek et al. 2024), PAPE: a
    classifier tells reference from operational rows; its odds, times n / N, are the weights; isotonic
    regression of right on confidence is fitted with them and averaged over operational rows. Where it differs
    from the paper: the classifier is a logistic regression instead of gradient boosting, asked about rows it
    was not fitted on (five folds), so that it does not tell the sets apart by heart; and instead of the
    inputs it sees what the network made of them: logits, and penultimate features if both sets have them.

    The classifier needs the rows of both sets at once, so nothing can be counted apart and added.
    """

    name = "importance weighting (PAPE)"
    assumption = "operational rows are reference rows in other proportions: rows alike are right as often"
    counted = "nothing: it compares the rows themselves, and is left out where only counts are known"
    additive = False

    @classmethod
    def applies(cls, reference: AccuracyReference) -> bool:
        return len(reference.labelled) >= FOLDS

    def fit(self, reference: AccuracyReference) -> Self:
        self.reference_ = reference.labelled
        return self

    def obstacle(self, predictions: Predictions) -> str:
        return "" if len(predictions) >= FOLDS else f"needs at least {FOLDS} operational rows"

    def sums(self, predictions: Predictions) -> Doubles:
        """Mean calibrated confidence, its variance, and how many reference rows are like operational ones."""
        from sklearn.isotonic import IsotonicRegression

        weights = self._weights(predictions)
        known, correct = self.reference_.predictions.confidence, self.reference_.correct
        curve = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(known, correct, weights)
        calibrated = curve.predict(predictions.confidence)
        errors = correct - curve.predict(known)
        share = weights / weights.sum()
        # One more row, as wrong as can be, so that a reference without errors is not mistaken for certainty.
        reference = float(share**2 @ errors**2) + float((share**2).max())
        operation = float((calibrated * (1 - calibrated)).mean()) / len(predictions)
        # The weights of n rows add up to n, unless hardly a row is like those in operation.
        alike = min(1 / float(share @ share), float(weights.sum()))
        return np.array([calibrated.mean(), reference + operation, alike])

    def interval(self, sums: Doubles, rows: int, level: float) -> tuple[float, float, float]:
        return normal_interval(float(sums[0]), float(sums[1]), level)

    def doubt(self, sums: Doubles, rows: int) -> str:
        if sums[2] >= FEWEST_ALIKE:
            return ""
        return f"only {sums[2]:.0f} reference rows are like these"

    def _weights(self, predictions: Predictions) -> Doubles:
        from sklearn.linear_model import LogisticRegression
        from sklearn.model_selection import StratifiedKFold, cross_val_predict
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        reference = self.reference_.predictions
        rows = np.concatenate([_logits(reference), _logits(predictions)])
        if reference.features is not None and predictions.features is not None:
            rows = np.hstack([rows, np.concatenate([reference.features, predictions.features])])
        operational = np.repeat([0, 1], [len(reference), len(predictions)])
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
        folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
        found = cross_val_predict(model, rows, operational, cv=folds, method="predict_proba")
        # Where every reference row is told apart with certainty, all weigh the same: next to nothing.
        here, there = np.maximum(found[: len(reference)].T, np.finfo(np.float64).tiny)
        return np.asarray(there / here * len(reference) / len(predictions))


def _logits(predictions: Predictions) -> Doubles:
    return np.maximum(predictions.centred_logits, SMALLEST_LOGIT)
