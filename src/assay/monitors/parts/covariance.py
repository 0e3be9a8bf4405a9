"""Covariance estimates that can always be inverted, and say what that took."""

import math

import torch
from torch import Tensor

from assay.errors import InputError
from assay.monitors.parts.moments import ClassMoments

ESTIMATORS = ("empirical", "ledoit_wolf", "oas")

_SINGULAR = 1e12
"""Average variance over smallest variance from which a covariance counts as singular: the smallest standard
deviation is then 1e-6 of the average one, where features in single precision carry rounding, not data."""

_SINGLE = 16.0
"""Largest amplification of rounding (see `precision`) at which scores are computed in single precision."""


def checked_estimator(estimator: str) -> str:
    if estimator not in ESTIMATORS:
        raise InputError(f"expected estimator to be one of {list(ESTIMATORS)}, got {estimator!r}")
    return estimator


def whitening(
    scatter: Tensor, rows: float, estimator: str, fourth: Tensor | float | None
) -> tuple[Tensor, str]:
    """L^-1 of the estimated covariance L L', and a sentence about the remedy, empty where none was needed.

    The covariance is scatter / rows (maximum likelihood, as in Lee et al. 2018), shrunk towards a multiple
    of the identity where the estimator says so. One that is singular is shrunk by OAS instead, which leaves
    every direction at least 1 / (rows + 1) of the average variance; one that is zero becomes the identity.
    """
    empirical = scatter / rows
    covariance = shrunk(empirical, _shrinkage(empirical, rows, estimator, fourth))
    inverse = _inverse_factor(covariance)
    if inverse is not None:
        return inverse, ""
    if empirical.diagonal().sum() > 0:
        inverse = _inverse_factor(shrunk(empirical, oas_shrinkage(empirical, rows)))
        if inverse is not None:
            return inverse, (
                f"the covariance of {int(rows)} rows in {len(scatter)} dimensions was singular (constant or "
                "dependent features, or too few rows) and was shrunk by OAS; fit on more rows"
            )
    return torch.eye(len(scatter), dtype=scatter.dtype), (
        "every row equalled the mean of its class, so that the covariance was zero and distances are "
        "Euclidean; fit on more rows"
    )


def shrunk(covariance: Tensor, shrinkage: float) -> Tensor:
    """(1 - shrinkage) S + shrinkage (tr S / d) I."""
    mean = covariance.diagonal().mean()
    result = covariance * (1 - shrinkage)
    result.diagonal().add_(shrinkage * mean)
    return result


def oas_shrinkage(covariance: Tensor, rows: float) -> float:
    """Chen et al. 2010, Eq. 23, without its terms 2/d, as scikit-learn computes it."""
    average, square = covariance.square().mean(), covariance.diagonal().mean().square()
    return float(oas_share(average, square, len(covariance), torch.tensor(rows)))


def oas_share(average: Tensor, square: Tensor, dimensions: int, rows: Tensor) -> Tensor:
    """The same from the mean of the squared entries and the square of the average variance."""
    excess = (rows + 1) * (average - square / dimensions)
    return torch.where(excess > 0, (average + square) / excess, 1.0).clamp(max=1.0)


def ledoit_wolf_shrinkage(covariance: Tensor, rows: float, fourth: float) -> float:
    """Ledoit and Wolf 2004, from the covariance and the sum of the centred rows' ||x||^4."""
    dimensions = len(covariance)
    squares = float(covariance.square().sum())
    distance = (squares - float(covariance.diagonal().sum()) ** 2 / dimensions) / dimensions
    noise = (fourth / rows - squares) / rows / dimensions
    return 0.0 if noise <= 0 or distance <= 0 else min(noise, distance) / distance


def class_axes(moments: ClassMoments, inverse: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(origin, axes, centres): coordinates z = (x - origin) axes in which the covariance is the identity
    and the means of the seen classes are `centres` in the first coordinates and zero in all others.

    The rotation leaves distances as they are, and only as many coordinates as there are classes tell one
    class from another. The origin is a number of single precision, so that subtracting it adds no error.
    """
    origin = moments.mean.float().double()
    centred = (moments.means[moments.seen] - origin) @ inverse.T
    rotation, corner = torch.linalg.qr(centred.T, mode="complete")
    width = min(centred.shape)
    return origin, inverse.T @ rotation, corner[:width].T.contiguous()


def precision(axes: Tensor, spread: Tensor) -> torch.dtype:
    """Single where its rounding cannot show in a squared distance, else double.

    Each product x_j axes_ji is rounded by eps of itself, so that a whitened row moves by about
    eps ||diag(s) axes||, with s_j the standard deviation (`spread`) of feature j. A typical row has d
    coordinates of size 1, and its squared distance d changes by a share of 2 eps / sqrt(d) times an
    amplification ||diag(s) axes|| / sqrt(d), which is 1 for independent features of any scale. Limiting it to
    16 keeps scores to about 2e-6 of their value.
    """
    amplification = float((spread[:, None] * axes).norm()) / len(spread) ** 0.5
    return torch.float32 if amplification <= _SINGLE else torch.float64


def _shrinkage(covariance: Tensor, rows: float, estimator: str, fourth: Tensor | float | None) -> float:
    if estimator == "oas":
        return oas_shrinkage(covariance, rows)
    if estimator == "ledoit_wolf":
        assert fourth is not None
        return ledoit_wolf_shrinkage(covariance, rows, float(fourth))
    return 0.0


def _inverse_factor(covariance: Tensor) -> Tensor | None:
    """L^-1 with covariance = L L', or None where it is singular to working precision."""
    factor, failed = torch.linalg.cholesky_ex(covariance)
    if failed:
        return None
    eye = torch.eye(len(covariance), dtype=covariance.dtype)
    inverse = torch.linalg.solve_triangular(factor, eye, upper=False)
    # ||L^-1||^2 is the trace of the inverse, at least one over the smallest variance.
    condition = float(covariance.diagonal().mean() * inverse.square().sum())
    return inverse if math.isfinite(condition) and condition < _SINGULAR else None
