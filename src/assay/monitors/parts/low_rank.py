"""A covariance per class in few numbers: variances along its largest directions, and one for all others."""

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.monitors.parts.class_rows import named
from assay.monitors.parts.covariance import oas_share
from assay.monitors.parts.subspaces import ClassSubspaces

_SINGULAR = 1e-12
"""Share of the average variance below which the one for all other directions counts as none."""

_SINGLE = 16.0
"""Variance along the kept directions over that beside them, up to which scores are computed in single
precision: a squared distance cancels by about that much."""

_PRODUCTS = 2**24
"""Numbers that the products of a few rows with all directions may be at a time."""


@dataclass(frozen=True)
class LowRankGaussians:
    """Sigma_c = U_c diag(lambda_c) U_c' + sigma_c^2 (I - U_c U_c') for every seen class, and its mean.

    The maximum-likelihood covariance of this form (Tipping and Bishop 1999, Eqs. 7 and 8): lambda are the
    largest variances and sigma^2 is the average of the others.
    """

    origin: Tensor
    centres: Tensor
    axes: Tensor
    weights: Tensor
    rest: Tensor

    @classmethod
    def of(cls, found: ClassSubspaces, estimator: str) -> tuple["LowRankGaussians", str]:
        """Shrunk towards a multiple of the identity by OAS where the estimator is that, or where a class has
        no variance beside its directions; and a sentence about the latter."""
        classes = found.seen
        counts, size = found.counts[classes], found.means.shape[1]
        axes, variances, others = found.directions(classes)
        average = (variances.sum(dim=1) + others) / size
        rest = others / (size - found.rank)
        squares = (variances.square().sum(dim=1) + (size - found.rank) * rest.square()) / size**2
        singular, flat = rest <= _SINGULAR * average, average == 0
        share = oas_share(squares, average.square(), size, counts)
        share = share if estimator == "oas" else torch.where(singular, share, 0.0)
        typical = average[~flat].mean() if not flat.all() else torch.ones((), dtype=torch.float64)
        average = torch.where(flat, typical, average)
        share = torch.where(flat, 1.0, share)
        along = variances * (1 - share[:, None]) + (share * average)[:, None]
        beside = rest * (1 - share) + share * average
        origin = found.mean.float().double()
        double = bool((along.sum(dim=1) > _SINGLE * size * beside).any())
        dtype = torch.float64 if double else torch.float32
        gaussians = cls(
            origin.to(dtype),
            found.means[classes] - origin,
            axes.to(dtype),
            1 / beside[:, None] - 1 / along,
            beside,
        )
        said = flat if estimator == "oas" else singular
        return gaussians, _remedy(classes[said].tolist(), int(counts[said].min()) if said.any() else 0)

    def distances(self, features: Tensor) -> Tensor:
        """(N, seen classes): (|y|^2 - sum_j (u_j'y)^2) / sigma^2 + sum_j (u_j'y)^2 / lambda_j, y = x - mu."""
        away = features.to(self.axes.dtype) - self.origin
        near = away.double()
        squares = torch.addmm(self.centres.square().sum(dim=1), near, self.centres.T, alpha=-2)
        squares = squares + near.square().sum(dim=1, keepdim=True)
        count, rank, size = self.axes.shape
        steps = max(1, _PRODUCTS // max(1, len(features) * rank))
        parts = []
        for start in range(0, count, steps):
            group = slice(start, start + steps)
            axes = self.axes[group]
            centred = torch.einsum("crd,cd->cr", axes.double(), self.centres[group])
            along = (away @ axes.reshape(-1, size).T).reshape(-1, len(axes), rank) - centred.to(away.dtype)
            parts.append((along.square() * self.weights[group].to(along.dtype)).sum(dim=2).double())
        return (squares / self.rest - torch.cat(parts, dim=1)).clamp(min=0)


def _remedy(classes: list[int], fewest: int) -> str:
    if not classes:
        return ""
    return (
        f"{named(classes)} had too few rows for a covariance of their own (the fewest: {fewest}), which was "
        "shrunk by OAS, or set to the average variance if there was no spread at all; fit on more rows, or "
        "lower rank="
    )
