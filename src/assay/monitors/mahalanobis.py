"""Mahalanobis: doubt what lies far from every class in feature space (Lee et al. 2018)."""

from collections.abc import Iterator

import torch
from torch import Tensor

from assay.data.memory import free_memory, readable
from assay.errors import InputError
from assay.monitors.metadata import Labels, Metadata, Needs
from assay.monitors.monitor import Monitor
from assay.monitors.parts.class_rows import named
from assay.monitors.parts.covariance import checked_estimator, class_axes, precision, whitening
from assay.monitors.parts.gathered import Gathered
from assay.monitors.parts.input_step import INPUT_STEP, perturbed_scores
from assay.monitors.parts.low_rank import LowRankGaussians
from assay.monitors.parts.moments import ClassMoments
from assay.monitors.parts.subspaces import ClassSubspaces
from assay.network import Network
from assay.trace import Trace

COVARIANCES = ("tied", "per_class", "low_rank")

_ROWS = 1024  # scored at a time: intermediate results stay in cache

_BYTES = 24
"""Per number of a covariance: its sum, its factor, and the factor that is kept, in double precision."""


class Mahalanobis(Monitor):
    """s(x) = min_c D_M^2(x, c), with D_M^2(x, c) = (f(x) - mu_c)' Sigma^-1 (f(x) - mu_c).

    Means and the tied covariance are Eq. 1 of Lee et al. (divided by the number of rows); with
    `covariance="per_class"` every class has its own, with "low_rank" its own variances along its `rank`
    largest directions and one for all others (Tipping and Bishop 1999). Rows are fitted under their label
    where the Trace has labels, else under their prediction. `estimator` is "empirical", "ledoit_wolf" (not
    with "low_rank") or "oas". For a Gaussian class D_M^2 is chi-square with d degrees of freedom; Lee et al.
    report -D_M^2, which orders inputs alike.

    With `network` and `magnitude` > 0 inputs are first moved by x - magnitude sign(grad_x D_M^2) towards
    their nearest class (their section 2.2); the Traces to score then need inputs.

    Fitting streams. Per-class covariances take C d^2 numbers, and scoring with them costs C times as much;
    low-rank ones take C d `rank` numbers, and C `rank` / d times as much. A singular covariance is shrunk,
    and `remedy_` says so.
    """

    metadata = Metadata(
        score="min over classes c of (z - μ_c)' Σ⁻¹ (z - μ_c)",
        needs=Needs(labels=Labels.OPTIONAL),
        fit="N * d**2",
        cost="N * d**2",
        state="4 * d**2",
        paper="Lee et al.",
        year=2018,
    )

    origin_: Tensor
    axes_: Tensor
    centres_: Tensor
    seen_: Tensor
    weights_: Tensor
    rest_: Tensor

    def __init__(
        self,
        *,
        layer: str = "penultimate",
        covariance: str = "tied",
        estimator: str = "empirical",
        rank: int = 16,
        network: Network | None = None,
        magnitude: float = 0.0,
    ) -> None:
        if covariance not in COVARIANCES:
            raise InputError(f"expected covariance to be one of {list(COVARIANCES)}, got {covariance!r}")
        if covariance == "low_rank" and estimator == "ledoit_wolf":
            raise InputError(
                "expected estimator='empirical' or 'oas' with covariance='low_rank', got 'ledoit_wolf', "
                "which needs whole covariances; pass estimator='oas'"
            )
        if rank < 1:
            raise InputError(f"expected a rank of at least 1, got {rank}")
        if magnitude < 0 or (magnitude > 0 and network is None):
            raise InputError(
                f"expected a magnitude of 0, or a positive one and the network, got {magnitude} and "
                f"{network}; pass network= to perturb inputs"
            )
        self.layer = layer
        self.covariance = covariance
        self.estimator = checked_estimator(estimator)
        self.rank = rank
        self.network = network
        self.magnitude = magnitude

    @property
    def needs(self) -> Needs:
        return self.metadata.needs | INPUT_STEP if self.magnitude > 0 else self.metadata.needs

    def distances(self, trace: Trace) -> Tensor:
        """(N, classes): D_M^2 of every row to every class; infinite for a class that fitting never saw."""
        self._check_fitted()
        self._check_sizes(trace)
        features = trace.layer(self.layer)
        result = torch.full((len(features), self.classes_), torch.inf, dtype=torch.float64)
        result[:, self.seen_] = self._distances(features)
        return result

    def _gather(self, traces: Iterator[Trace]) -> dict[str, Gathered]:
        if self.covariance == "low_rank":
            return {"subspaces": ClassSubspaces.of(traces, self.layer, self.rank)}
        each_class = self.covariance == "per_class"
        if each_class:
            self._check_room()
        fourth = self.estimator == "ledoit_wolf"
        return {"moments": ClassMoments.of(traces, self.layer, each_class=each_class, fourth=fourth)}

    def _describe(self, moments: ClassMoments | None = None, subspaces: ClassSubspaces | None = None) -> None:
        if subspaces is not None:
            self._describe_low_rank(subspaces)
        if moments is not None:
            self._describe_whole(moments)

    def _describe_whole(self, moments: ClassMoments) -> None:
        each_class = self.covariance == "per_class"
        self.seen_ = moments.seen
        tied, self.remedy_ = tied_whitening(moments, self.estimator)
        if not each_class:
            origin, axes, centres = class_axes(moments, tied)
        else:
            origin = moments.mean.float().double()
            axes = self._class_factors(moments, tied).mT
            centres = ((moments.means[self.seen_] - origin)[:, None, :] @ axes).squeeze(1)
        factors = axes.reshape(-1, *axes.shape[-2:])
        spread = moments.spread
        dtype = max((precision(factor, spread) for factor in factors), key=_bits)
        self.origin_, self.axes_, self.centres_ = origin.to(dtype), axes.to(dtype).contiguous(), centres

    def _describe_low_rank(self, found: ClassSubspaces) -> None:
        self.seen_ = found.seen
        gaussians, self.remedy_ = LowRankGaussians.of(found, self.estimator)
        self.origin_, self.centres_, self.axes_ = gaussians.origin, gaussians.centres, gaussians.axes
        self.weights_, self.rest_ = gaussians.weights, gaussians.rest

    def _check_room(self) -> None:
        """Before any work: a covariance per class of a wide layer does not fit anywhere."""
        size, free = self.dimensions_[self.layer], free_memory()
        needed = _BYTES * self.classes_ * size**2
        if needed > free:
            few = 4 * 4 * self.rank * self.classes_ * size
            raise InputError(
                f"expected covariances that fit into the {readable(free)} of free memory, got "
                f"{readable(needed)} for {self.classes_:,} classes of {size:,} features each; pass "
                f"covariance='low_rank', which takes {readable(few)}, or covariance='tied'"
            )

    def _class_factors(self, moments: ClassMoments, tied: Tensor) -> Tensor:
        """The factor of every seen class; the tied one where a class shows no spread of its own."""
        size = len(tied)
        factors = torch.empty(len(self.seen_), size, size, dtype=torch.float64)
        replaced: list[str] = []
        shrunk: list[str] = []
        fourths = moments.class_fourth
        for place, number in enumerate(self.seen_.tolist()):
            scatter = moments.class_scatter(number)
            rows = float(moments.counts[number])
            factor, remedy = whitening(scatter, rows, self.estimator, fourths[number])
            flat = float(scatter.diagonal().sum()) == 0
            factors[place] = tied if flat else factor
            if remedy:
                (replaced if flat else shrunk).append(f"{number} ({int(rows)} rows)")
        self.remedy_ = _class_remedy(replaced, shrunk)
        return factors

    def _score(self, trace: Trace) -> Tensor:
        if self.network is None or self.magnitude == 0:
            return self._nearest(trace)
        return perturbed_scores(
            self.network, trace, objective=self._nearest, step=-self.magnitude, score=self._nearest
        )

    def _nearest(self, trace: Trace) -> Tensor:
        return self._distances(trace.layer(self.layer)).amin(dim=1)

    def _distances(self, features: Tensor) -> Tensor:
        measured = {
            "tied": self._tied_distances,
            "per_class": self._class_distances,
            "low_rank": self._low_rank_distances,
        }[self.covariance]
        features = features.to(self.axes_.dtype)
        if len(features) <= _ROWS:
            return measured(features)
        return torch.cat([measured(rows) for rows in torch.split(features, _ROWS)])

    def _tied_distances(self, features: Tensor) -> Tensor:
        # Cancellation in |z|^2 - 2 z'm + |m|^2 is confined to the few coordinates the class means have, and
        # there to double precision.
        whitened = (features - self.origin_) @ self.axes_
        width = self.centres_.shape[1]
        near, beside = whitened[:, :width].double(), whitened[:, width:]
        square = beside.square().sum(dim=1, keepdim=True).double() + near.square().sum(dim=1, keepdim=True)
        apart = torch.addmm(self.centres_.square().sum(dim=1), near, self.centres_.T, alpha=-2)
        return apart.add_(square).clamp_(min=0)

    def _class_distances(self, features: Tensor) -> Tensor:
        centred = features - self.origin_
        columns = [
            (centred @ axes - centre.to(axes.dtype)).square().sum(dim=1).double()
            for axes, centre in zip(self.axes_, self.centres_, strict=True)
        ]
        return torch.stack(columns, dim=1)

    def _low_rank_distances(self, features: Tensor) -> Tensor:
        gaussians = LowRankGaussians(self.origin_, self.centres_, self.axes_, self.weights_, self.rest_)
        return gaussians.distances(features)


def _class_remedy(replaced: list[str], shrunk: list[str]) -> str:
    parts = [
        f"the covariance of {named(classes)} was singular and was {what}"
        for classes, what in ((replaced, "replaced by the tied one"), (shrunk, "shrunk by OAS"))
        if classes
    ]
    return "; ".join([*parts, "fit on more rows, or with covariance='tied'"]) if parts else ""


def tied_whitening(moments: ClassMoments, estimator: str) -> tuple[Tensor, str]:
    """L^-1 of the covariance that all classes share, and the remedy it took."""
    fourth = moments.total_fourth if estimator == "ledoit_wolf" else None
    return whitening(moments.scatter, moments.rows, estimator, fourth)


def _bits(dtype: torch.dtype) -> int:
    return torch.finfo(dtype).bits
