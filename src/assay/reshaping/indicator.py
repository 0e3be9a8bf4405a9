"""Safety performance indicators: accuracy, per-class recall, or any function of (labels, predictions)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from assay.errors import InputError
from assay.reshaping.array_types import Floats

Labels: TypeAlias = Tensor | NDArray[Any]
PointFlags: TypeAlias = Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]


@runtime_checkable
class RatioIndicator(Protocol):
    """A ratio of sums over points: a `Ratio`, or the package `assay.accuracy`, which is an indicator too."""

    @property
    def name(self) -> str: ...

    def parts(self, labels: Labels, predictions: Labels) -> tuple[Floats, Floats]:
        """The contribution of each point to the numerator and to the denominator."""


@dataclass(frozen=True)
class Ratio:
    """A share of points: the `hits` among those that `counts`, both functions of (labels, predictions).

    A ratio of sums over points has a weighted form and a range over all weightings. A plain function of
    (labels, predictions) also works wherever an indicator is expected, but has no range.

    >>> accuracy(np.array([0, 1, 2, 2]), np.array([0, 1, 1, 2]))
    0.75
    >>> recall(2)(np.array([0, 1, 2, 2]), np.array([0, 1, 1, 2]))
    0.5
    """

    name: str
    hits: PointFlags
    counts: PointFlags

    def __call__(self, labels: Labels, predictions: Labels) -> float:
        """The share; NaN where no point counts."""
        numerator, denominator = self.parts(labels, predictions)
        return float(numerator.sum() / denominator.sum()) if denominator.any() else float("nan")

    def parts(self, labels: Labels, predictions: Labels) -> tuple[Floats, Floats]:
        """The contribution of each point to the numerator and to the denominator."""
        truth, guess = np.asarray(labels), np.asarray(predictions)
        if truth.shape != guess.shape or truth.ndim != 1:
            raise InputError(
                f"expected one label and one prediction per point, got shapes {truth.shape} and {guess.shape}"
            )
        counted = self.counts(truth, guess).astype(np.float64)
        return counted * self.hits(truth, guess), counted


Indicator: TypeAlias = RatioIndicator | Callable[[Tensor, Tensor], float]


def name_of(indicator: Indicator) -> str:
    return str(getattr(indicator, "name", getattr(indicator, "__name__", "indicator")))


def _is_correct(labels: NDArray[Any], predictions: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(labels == predictions)


def _every_point(labels: NDArray[Any], predictions: NDArray[Any]) -> NDArray[Any]:
    return np.ones(labels.shape, bool)


accuracy = Ratio("accuracy", _is_correct, _every_point)


def recall(label: int) -> Ratio:
    """The share of a class's inputs that are classified correctly."""
    return Ratio(f"recall of class {label}", _is_correct, lambda labels, _: np.asarray(labels == label))
