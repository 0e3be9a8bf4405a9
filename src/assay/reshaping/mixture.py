"""Operation as a mixture of the groups of the test set: their shares, fitted to the histograms."""

from dataclasses import dataclass

import numpy as np

from assay.reshaping.array_types import Floats
from assay.reshaping.grouped_cells import GroupedCells
from assay.reshaping.histogram import Histogram
from assay.reshaping.simplex import shares_fit

ROUNDS = 2  # of fitting and weighing again by the covariance that the fit implies
SHRINKAGE = 0.5
"""How far the covariance is drawn to its diagonal, because there are hundreds of cells and few points."""


@dataclass(frozen=True, eq=False)
class Mixture:
    """Shares of the groups; what is left of the portions; and how that is weighed.

    The shares are fitted with the whole covariance (`whitening`); the misfit is measured with the variances
    alone. A covariance that was estimated on the points the resamples come from fits those better than it
    fits operation, and would make the test reject far too often.
    """

    shares: Floats
    apart: Floats
    whitening: Floats
    variances: Floats

    @property
    def misfit(self) -> float:
        return float(self.misfit_of(self.apart))

    def misfit_of(self, apart: Floats) -> Floats:
        """Differences of portions, each in standard deviations, summed over the cells.

        Not squared: one rare cell whose variance comes out too small would decide the test.
        """
        return np.asarray((np.abs(apart) / np.sqrt(self.variances)).sum(axis=-1))


def fitted_mixture(cells: GroupedCells, operational: Histogram) -> Mixture:
    """Portions = sum over groups of share x P(cell | group), by generalised least squares on the simplex."""
    portions, noise = cells.counts(operational) / operational.total, cells.noise(operational)
    shares: Floats = cells.sizes / cells.sizes.sum()
    for _ in range(ROUNDS):
        covariance = cells.covariance(shares, operational.total)
        covariance[np.diag_indices_from(covariance)] += noise
        root = whitening(covariance)
        shares, _ = shares_fit(root @ cells.portions, root @ portions)
    variances = _variances(covariance)
    return Mixture(shares, portions - cells.portions @ shares, root, variances)


def whitening(covariance: Floats) -> Floats:
    """L^-1 of the shrunk covariance L L^T: residuals times it weigh by their precision."""
    shrunk = (1 - SHRINKAGE) * covariance
    shrunk[np.diag_indices_from(shrunk)] = _variances(covariance)
    root: Floats = np.linalg.inv(np.linalg.cholesky(shrunk))
    return root


def _variances(covariance: Floats) -> Floats:
    variances = np.diagonal(covariance)
    return np.maximum(variances, max(1e-9 * float(variances.max()), 1e-300))
