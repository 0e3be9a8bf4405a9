"""How far features lie from the classes of the training data (MIRA, Eq. 1)."""

import math
from collections.abc import Sequence
from typing import Literal, Self, get_args

import torch
from torch import Tensor

from assay.errors import InputError, UndecidedError
from assay.monitors import Mahalanobis
from assay.monitors.parts.moments import ClassMoments
from assay.outputs import LOGITS
from assay.trace import Trace

ReferenceClass = Literal["nearest", "predicted", "label"]
FitOn = Literal["all", "correct"]
Still = Literal["drop", "shrink"]

_STILL = 1e-6
"""Share of the largest variance below which a direction counts as still: a thousandth of its spread."""


class FeatureDistance:
    """Squared Mahalanobis distance to the nearest class, to the predicted one, or to that of the label.

    Several layers are joined into one vector per input, so that their covariance counts too.
    `assay.monitors.Mahalanobis` estimates means and covariance, on all training rows or on those that the
    network gets right.

    Directions in which the training features of a class do not vary (dead neurons, neurons that follow
    from others) are left out, and the dimension is the number of the others: no distance is defined along
    them, and shrinking the covariance instead (`still="shrink"`) lets them dominate the score
    (docs/papers/mira.md).
    """

    def __init__(
        self,
        layers: Sequence[str],
        *,
        covariance: str = "tied",
        estimator: str = "empirical",
        reference: ReferenceClass = "nearest",
        fit_on: FitOn = "all",
        still: Still = "drop",
    ) -> None:
        for name, value, known in (
            ("reference", reference, get_args(ReferenceClass)),
            ("fit_on", fit_on, get_args(FitOn)),
            ("still", still, get_args(Still)),
        ):
            if value not in known:
                raise InputError(f"expected {name} to be one of {list(known)}, got {value!r}")
        self.layers = tuple(layers)
        self.name = " + ".join(self.layers)
        self.reference = reference
        self.fit_on = fit_on
        self.still = still
        self.monitor = Mahalanobis(layer=self.name, covariance=covariance, estimator=estimator)
        self._moving: Tensor | None = None

    def fit(self, trace: Trace) -> Self:
        if self.fit_on == "correct":
            trace = trace[trace.correct]
        counts = torch.bincount(trace.known_labels, minlength=trace.logits.shape[1])
        if (counts > 0).sum() < 2:
            raise InputError(
                f"expected training data of at least two classes, got {int((counts > 0).sum())}; "
                "pass the data the network was trained on"
            )
        if self.reference != "nearest" and not counts.all():
            right = " that the network gets right" if self.fit_on == "correct" else ""
            raise InputError(
                f"expected training data of every class{right} for reference={self.reference!r}, got none of "
                f"{(counts == 0).nonzero().flatten().tolist()}; use reference='nearest'"
            )
        self.rows = int(counts[counts > 0].min() if self.monitor.covariance == "per_class" else counts.sum())
        joined = self._joined(trace)
        self.width = joined.layer(self.name).shape[1]
        self._check_determined(int((counts > 0).sum()))
        self._moving = self._moving_directions(joined)
        self.monitor.fit(self._joined(trace))
        self.dimensions = self.monitor.dimensions_[self.name]
        return self

    def squared(self, trace: Trace) -> Tensor:
        """(N,) in double precision. Costs one N x d x d product, one per class with their own covariances."""
        joined = self._joined(trace)
        if self.reference == "nearest":
            return self.monitor.score(joined)
        classes = trace.predictions if self.reference == "predicted" else trace.known_labels
        return self.monitor.distances(joined).gather(1, classes[:, None])[:, 0]

    def features(self, trace: Trace) -> Tensor:
        """(N, width): the layer's features, or those of several layers side by side."""
        parts = [trace.layer(layer) for layer in self.layers]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences about what fitting had to change, and about too few rows for the dimension."""
        sentences = []
        if self.dimensions < self.width:
            sentences.append(
                f"{self.width - self.dimensions} of {self.width} directions did not vary in the training "
                f"features and were left out; {self.dimensions} remain"
            )
        shift = inflation(self.rows, self.dimensions)
        if self.monitor.remedy_:
            sentences.append(self.monitor.remedy_)
        elif self.monitor.estimator == "empirical" and shift > 0.5:
            which = " in the smallest class" if self.monitor.covariance == "per_class" else ""
            sentences.append(
                f"{self.rows} training rows{which} are few for {self.dimensions} dimensions: squared "
                f"distances of unseen inputs are inflated by {shift:.1f} standard deviations; fit on more "
                "rows, or with estimator='ledoit_wolf'"
            )
        return tuple(sentences)

    def _check_determined(self, classes: int) -> None:
        """Rows about the means of their classes have fewer directions than rows: is the covariance one?"""
        each = self.monitor.covariance == "per_class"
        free = self.rows - (1 if each else classes)
        shrinks = self.monitor.estimator != "empirical"
        needed = 1 if shrinks else self.width
        if free < needed:
            raise UndecidedError(
                f"expected at least {needed + self.rows - free} training rows "
                f"{'in every class' if each else f'of {classes} classes'} to determine the covariance of "
                f"{self.width} features at layer {self.name}, got {self.rows}; fit on more rows"
                + ("" if shrinks else ", or with estimator='ledoit_wolf'")
            )

    def _moving_directions(self, trace: Trace) -> Tensor | None:
        """(width, d): directions in which training features vary within classes.

        None if they all do, if rows are too few to tell, or if the estimator shrinks the covariance anyway.
        """
        if self.still == "shrink" or self.monitor.estimator != "empirical" or self.rows <= 2 * self.width:
            return None
        scatter = ClassMoments.of(iter([trace]), self.name).scatter
        values, vectors = torch.linalg.eigh(scatter)
        moving = values > _STILL * values[-1]
        return None if moving.all() or not moving.any() else vectors[:, moving]

    def _joined(self, trace: Trace) -> Trace:
        features = self.features(trace)
        if self._moving is not None:
            features = features.double() @ self._moving
        return Trace(trace.logits, {self.name: features}, trace.labels, outputs=LOGITS)


def inflation(rows: int, dimensions: int) -> float:
    """How far the squared distance of an unseen Gaussian row lies above that of a fitted one, on average.

    With a covariance from n rows it is n / (n - d - 1) times d instead of d (the mean of Hotelling's T^2),
    here in standard deviations, sqrt(2 d), of the chi-square it is compared with.

    >>> round(inflation(1000, 64), 2), inflation(50, 64)
    (0.39, inf)
    """
    spare = rows - dimensions - 1
    return math.inf if spare <= 0 else dimensions * (dimensions + 1) / spare / math.sqrt(2 * dimensions)
