"""RelativeMahalanobis: far from every class, beyond what is far from everything (Ren et al. 2021)."""

from collections.abc import Iterator

import torch
from torch import Tensor

from assay.monitors.mahalanobis import tied_whitening
from assay.monitors.metadata import Labels, Metadata, Needs
from assay.monitors.monitor import Monitor
from assay.monitors.parts.covariance import checked_estimator, class_axes, precision
from assay.monitors.parts.gathered import Gathered
from assay.monitors.parts.moments import ClassMoments
from assay.trace import Trace


class RelativeMahalanobis(Monitor):
    """s(x) = min_c D^2(x, c) - D_0^2(x), where D_0 is to one Gaussian fitted to all classes together.

    The covariance about the common mean is the tied one plus that of the class means. In the coordinates
    where the tied covariance is the identity the two therefore differ only in the span of the class means,
    and all other coordinates cancel from the difference. So the score needs one product of N x d x C, not
    two of N x d x d; with "empirical" it equals Ren et al. section 3 exactly.
    With a shrinkage estimator (Ren et al. use none) the common covariance is the shrunk tied one plus that
    of the class means. Rows are fitted under their label where the Trace has labels, else their prediction.
    """

    metadata = Metadata(
        score="Mahalanobis minus the distance to one Gaussian of all classes",
        needs=Needs(labels=Labels.OPTIONAL),
        fit="N * d**2",
        cost="N * d * C",
        state="4 * d * (C + 1) + 16 * C**2",
        paper="Ren et al.",
        year=2021,
    )

    origin_: Tensor
    axes_: Tensor
    centres_: Tensor
    mean_: Tensor
    inverse_: Tensor

    def __init__(self, *, layer: str = "penultimate", estimator: str = "empirical") -> None:
        self.layer = layer
        self.estimator = checked_estimator(estimator)

    def _gather(self, traces: Iterator[Trace]) -> dict[str, Gathered]:
        return {"moments": ClassMoments.of(traces, self.layer, fourth=self.estimator == "ledoit_wolf")}

    def _describe(self, moments: ClassMoments) -> None:
        factor, self.remedy_ = tied_whitening(moments, self.estimator)
        origin, axes, self.centres_ = class_axes(moments, factor)
        shares = moments.counts[moments.seen] / moments.rows
        self.mean_ = shares @ self.centres_
        away = (self.centres_ - self.mean_) * shares.sqrt()[:, None]
        width = self.centres_.shape[1]
        self.inverse_ = torch.linalg.inv(torch.eye(width, dtype=torch.float64) + away.T @ away)
        dtype = precision(axes, moments.spread)
        self.origin_, self.axes_ = origin.to(dtype), axes[:, :width].to(dtype).contiguous()

    def _score(self, trace: Trace) -> Tensor:
        features = trace.layer(self.layer).to(self.axes_.dtype)
        # The transposed product is the faster way round where classes are few.
        near = (self.axes_.T @ (features - self.origin_).T).T.double()
        apart = torch.addmm(self.centres_.square().sum(dim=1), near, self.centres_.T, alpha=-2)
        to_class = (apart.amin(dim=1) + near.square().sum(dim=1)).clamp(min=0)
        away = near - self.mean_
        return to_class - ((away @ self.inverse_) * away).sum(dim=1)
