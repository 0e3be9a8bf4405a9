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
Flags: TypeAlias = Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]


@runtime_checkable
class RatioIndicator(Protocol):
    """A ratio of sums over points: `Ratio`, and the room `assay.accuracy`, which stands for its indicator."""

    @property
    def name(self) -> str: ...

    def parts(self, labels: Labels, predictions: Labels) -> tuple[Floats, Floats]:
        """Per point what it adds to the numerator and to the denominator."""


@dataclass(frozen=True)
class Ratio:
    """A share of points: those that `hits` among those that `counts`, each a function of labels, predictions.

    Being a ratio of sums over points, it has a weighted form and a range over all weightings. A plain
    function of (labels, predictions) also works wherever an indicator is asked for, but has neither range.

    >>> accuracy(np.array([0, 1, 2, 2]), np.array([0, 1, 1, 2]))
    0.75
    >>> recall(2)(np.array([0, 1, 2, 2]), np.array([0, 1, 1, 2]))
    0.5
    """

    name: str
    hits: Flags
    counts: Flags

    def __call__(self, labels: Labels, predictions: Labels) -> float:
        """The share; NaN where no point counts."""
        numerator, denominator = self.parts(labels, predictions)
        return float(numerator.sum() / denominator.sum()) if denominator.any() else float("nan")

    def parts(self, labels: Labels, predictions: Labels) -> tuple[Floats, Floats]:
        """Per point what it adds to the numerator and to the denominator."""
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


def _right(labels: NDArray[Any], predictions: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(labels == predictions)


def _every(labels: NDArray[Any], predictions: NDArray[Any]) -> NDArray[Any]:
    return np.ones(labels.shape, bool)


accuracy = Ratio("accuracy", _right, _every)


def recall(label: int) -> Ratio:
    """The share of inputs of one class that are recognised."""
    return Ratio(f"recall of class {label}", _right, lambda labels, _: np.asarray(labels == label))
