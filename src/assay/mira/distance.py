"""How far features lie from the classes of the training data (MIRA, Eq. 1)."""

import math
from collections.abc import Sequence
from typing import Literal, Self

import torch
from torch import Tensor

from assay.errors import InputError
from assay.monitors import Mahalanobis
from assay.trace import Trace

Reference = Literal["nearest", "predicted"]


class FeatureDistance:
    """Squared Mahalanobis distance to the nearest class, or to the predicted one.

    Several layers are joined into one vector per input, so that how they vary together counts too. The
    estimate of means and covariance is `assay.monitors.Mahalanobis`.
    """

    def __init__(
        self,
        layers: Sequence[str],
        *,
        covariance: str = "tied",
        estimator: str = "empirical",
        reference: Reference = "nearest",
    ) -> None:
        if reference not in ("nearest", "predicted"):
            raise InputError(f"expected reference to be 'nearest' or 'predicted', got {reference!r}")
        self.layers = tuple(layers)
        self.name = " + ".join(self.layers)
        self.reference = reference
        self.monitor = Mahalanobis(self.name, covariance=covariance, estimator=estimator)

    def fit(self, trace: Trace) -> Self:
        counts = torch.bincount(trace.known_labels, minlength=trace.logits.shape[1])
        if (counts > 0).sum() < 2:
            raise InputError(
                f"expected training data of at least two classes, got {int((counts > 0).sum())}; "
                "pass the data the network was trained on"
            )
        if self.reference == "predicted" and not counts.all():
            raise InputError(
                f"expected training data of every class for reference='predicted', got none of "
                f"{(counts == 0).nonzero().flatten().tolist()}; use reference='nearest'"
            )
        self.monitor.fit(self._joined(trace))
        self.rows = int(counts[counts > 0].min() if self.monitor.covariance == "per_class" else counts.sum())
        self.dimensions = self.monitor.dimensions_[self.name]
        return self

    def squared(self, trace: Trace) -> Tensor:
        """(N,) in double precision. Costs one N x d x d product, one per class with their own covariances."""
        joined = self._joined(trace)
        if self.reference == "nearest":
            return self.monitor.score(joined)
        distances = self.monitor.distances(joined)
        return distances.gather(1, trace.predictions[:, None])[:, 0]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What fitting had to do, and whether the sample can carry the dimension."""
        if self.monitor.remedy_:
            return (self.monitor.remedy_,)
        shift = inflation(self.rows, self.dimensions)
        if self.monitor.estimator != "empirical" or shift <= 0.5:
            return ()
        which = " in the smallest class" if self.monitor.covariance == "per_class" else ""
        return (
            f"{self.rows} training rows{which} are few for {self.dimensions} dimensions: squared distances "
            f"of unseen inputs are inflated by {shift:.1f} standard deviations; fit on more rows, or with "
            "estimator='ledoit_wolf'",
        )

    def features(self, trace: Trace) -> Tensor:
        """(N, d): the layer's features, or those of several layers side by side."""
        parts = [trace.layer(layer) for layer in self.layers]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def _joined(self, trace: Trace) -> Trace:
        return Trace(trace.logits, {self.name: self.features(trace)}, trace.labels)


def inflation(rows: int, dimensions: int) -> float:
    """How far the squared distance of an unseen Gaussian row lies above that of a fitted one, on average.

    With a covariance from n rows it is n / (n - d - 1) times d instead of d (the mean of Hotelling's T^2),
    here in standard deviations, sqrt(2 d), of the chi-square it is compared with.

    >>> round(inflation(1000, 64), 2), inflation(50, 64)
    (0.39, inf)
    """
    spare = rows - dimensions - 1
    return math.inf if spare <= 0 else dimensions * (dimensions + 1) / spare / math.sqrt(2 * dimensions)
