"""Predictions, in operation without labels and on the reference with labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from assay.errors import InputError
from assay.network import all_finite
from assay.network.taps import PENULTIMATE
from assay.trace import Trace
from assay.volatility.certainty import Doubles, margins
from assay.volatility.probabilities import Array, checked_rows

Whole = npt.NDArray[np.int64]

_NO_ENERGY = 1e-4
"""Below it, log sum e^logit is zero but for rounding."""


@dataclass(frozen=True, eq=False)
class Predictions:
    """N rows of probabilities and whatever else is known of them; methods that need it say so."""

    probabilities: Doubles
    others: tuple[Whole, ...] = ()
    """The classes that other networks predicted for the same rows."""
    logits: Array | None = None
    features: Array | None = None
    """Of the penultimate layer."""

    @classmethod
    def of(cls, operational: Any, other: Any = None) -> "Predictions":
        """From Traces or probabilities, checked; labels beside them are not read.

        `other` is one network's, or a list of several networks'.
        """
        if isinstance(operational, tuple) and len(operational) == 2 and np.ndim(operational[0]) == 2:
            operational = operational[0]
        rows = checked_rows(operational).astype(np.float64, copy=False)
        if not len(rows):
            raise InputError("expected at least one operational prediction, got none; pass some rows")
        others = tuple(_classes_of(one, len(rows)) for one in _each(other))
        if not isinstance(operational, Trace):
            return cls(rows, others)
        features = operational.features.get(PENULTIMATE)
        if features is not None and not all_finite(features):
            raise InputError(
                "expected finite penultimate features, got NaN or infinity; look for a failing layer"
            )
        logits = _array(operational.logits)
        # Logarithms of probabilities stand in for logits that nobody kept.
        known = bool((np.abs(np.log(rows.max(axis=1)) - logits.max(axis=1)) > _NO_ENERGY).any())
        return cls(rows, others, logits if known else None, None if features is None else _array(features))

    def __len__(self) -> int:
        return len(self.probabilities)

    @cached_property
    def confidence(self) -> Doubles:
        return np.asarray(self.probabilities.max(axis=1))

    @cached_property
    def classes(self) -> Whole:
        return np.asarray(self.probabilities.argmax(axis=1))

    @cached_property
    def negative_entropy(self) -> Doubles:
        p = self.probabilities
        return np.asarray((p * np.log(np.where(p > 0, p, 1.0))).sum(axis=1))

    @cached_property
    def margins(self) -> Doubles:
        return margins(self.probabilities)

    @cached_property
    def centred_logits(self) -> Doubles:
        """Logits whose mean over the classes is zero: all that probabilities say about them.

        A probability of zero counts as the smallest number a double can hold.
        """
        smallest = np.finfo(np.float64).tiny
        logits = np.log(np.maximum(self.probabilities, smallest))
        return np.asarray(logits - logits.mean(axis=1, keepdims=True))


def _each(other: Any) -> list[Any]:
    """The networks in `other`: none, one, or those of a list; rows of numbers are one network's."""
    if other is None:
        return []
    several = isinstance(other, list | tuple) and all(
        isinstance(one, Trace) or np.ndim(one) == 2 for one in other
    )
    return list(other) if several else [other]


def _classes_of(other: Any, count: int) -> Whole:
    classes = np.asarray(checked_rows(other).argmax(axis=1))
    if len(classes) != count:
        raise InputError(
            f"expected the other network's predictions of the same {count} rows, got {len(classes)}; "
            "observe both networks on the same inputs"
        )
    return classes


def _array(tensor: Tensor) -> Array:
    """Without a copy, except for types that numpy lacks."""
    tensor = tensor.detach().cpu()
    return np.asarray((tensor.float() if tensor.itemsize < 4 else tensor).numpy())


def expect_same_classes(reference: Any, operational: Any) -> None:
    """An error where saved predictions name their classes and the orders differ."""
    first, second = getattr(reference, "classes", None), getattr(operational, "classes", None)
    if first and second and tuple(first) != tuple(second):
        raise InputError(
            f"expected the classes of the reference in its order {list(first)}, got {list(second)}; read "
            "both with the same columns="
        )


def labelled_trace(reference: Any) -> Trace:
    """The reference as a Trace, from a Trace or from (probabilities, labels)."""
    if isinstance(reference, Trace):
        return reference
    if isinstance(reference, tuple) and len(reference) == 2:
        return Trace.from_probabilities(*reference)
    raise InputError(
        f"expected a reference as a labelled Trace or as (probabilities, labels), got "
        f"{type(reference).__name__}; observe (inputs, labels), or pass saved probabilities with their labels"
    )


@dataclass(frozen=True, eq=False)
class LabelledPredictions:
    """Predictions whose labels are known."""

    predictions: Predictions
    labels: Whole

    @classmethod
    def of(cls, trace: Trace, other: Any = None) -> "LabelledPredictions":
        return cls(Predictions.of(trace, other), trace.known_labels.numpy())

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def correct(self) -> Doubles:
        return np.asarray(self.predictions.classes == self.labels, float)


@dataclass(frozen=True, eq=False)
class AccuracyReference:
    """The data that methods learn from."""

    labelled: LabelledPredictions
    """The clean reference; with the other networks' predictions, where there are several."""
    perturbed: Sequence[LabelledPredictions]
    """The same rows under perturbations, for signals that are not on the scale of accuracy."""
    window: int
    """Rows per log VC."""
