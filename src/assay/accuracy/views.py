"""Three views of the accuracy of a set, each taught by the lessons and each blind to something else.

The nuclear norm sees how sure and how diverse the predictions of a set are together; ridge regression weighs
all signals; trees, which are also taught with other class frequencies, do not mistake those for errors.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Self

import numpy as np

from assay.accuracy.lesson_sets import LessonSet
from assay.accuracy.set_sums import NUCLEAR_NORM
from assay.volatility.certainty import Doubles

PENALTIES = np.logspace(-2, 3, 11)
TREES = 25


class View(ABC):
    """Accuracy as a function of the signals of a set."""

    @abstractmethod
    def fit(self, signals: Doubles, accuracy: Doubles) -> Self:
        """Learn from sets whose accuracy is known."""

    @abstractmethod
    def __call__(self, signals: Doubles) -> Doubles:
        """The accuracy of each set, in [0, 1]."""


class NuclearNormView(View):
    """A rising curve through the nuclear norms (isotonic regression)."""

    def fit(self, signals: Doubles, accuracy: Doubles) -> Self:
        from sklearn.isotonic import IsotonicRegression

        self._curve = IsotonicRegression(out_of_bounds="clip").fit(signals[:, NUCLEAR_NORM], accuracy)
        return self

    def __call__(self, signals: Doubles) -> Doubles:
        return np.asarray(self._curve.predict(signals[:, NUCLEAR_NORM]))


class RidgeView(View):
    """A weighted sum of all signals, standardised over the lessons; its penalty by leaving out one by one."""

    def fit(self, signals: Doubles, accuracy: Doubles) -> Self:
        from sklearn.linear_model import RidgeCV

        self._mean, spread = signals.mean(axis=0), signals.std(axis=0)
        self._spread = np.where(spread > 0, spread, np.inf)  # a signal that never moved tells nothing
        self._ridge = RidgeCV(PENALTIES).fit(self._standard(signals), accuracy)
        return self

    def __call__(self, signals: Doubles) -> Doubles:
        return np.asarray(np.clip(self._ridge.predict(self._standard(signals)), 0.0, 1.0))

    def _standard(self, signals: Doubles) -> Doubles:
        return np.asarray((signals - self._mean) / self._spread)


class TreeView(View):
    """Extremely randomised trees (Geurts et al. 2006)."""

    def fit(self, signals: Doubles, accuracy: Doubles) -> Self:
        from sklearn.ensemble import ExtraTreesRegressor

        self._trees = ExtraTreesRegressor(TREES, min_samples_leaf=2, random_state=0).fit(signals, accuracy)
        return self

    def __call__(self, signals: Doubles) -> Doubles:
        return np.asarray(self._trees.predict(signals))


class Views:
    """All three, taught by the same sets; `of` gives a column each."""

    def __init__(self, sets: Sequence[LessonSet]) -> None:
        plain = [one for one in sets if not one.mixed]
        self._views = [
            NuclearNormView().fit(*_table(plain)),
            RidgeView().fit(*_table(plain)),
            TreeView().fit(*_table(sets)),
        ]

    def of(self, signals: Doubles) -> Doubles:
        """(sets, 3)"""
        return np.stack([view(signals) for view in self._views], axis=1)


def combined(views: Doubles) -> Doubles:
    """The value of the answer: the mean of nuclear norm and ridge regression."""
    return np.asarray(views[:, :2].mean(axis=1))


def disagreement(views: Doubles) -> Doubles:
    """How far the views are apart: nuclear norm from ridge, and their mean from the trees."""
    return np.maximum(np.abs(views[:, 0] - views[:, 1]), np.abs(combined(views) - views[:, 2]))


def _table(sets: Sequence[LessonSet]) -> tuple[Doubles, Doubles]:
    return np.stack([one.signals for one in sets]), np.array([one.accuracy for one in sets])
