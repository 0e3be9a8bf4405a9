"""Surrogate proposals: a stretch redrawn as if the output were a sum of terms of neighbouring values.

Such a sum is fitted by least squares to the inputs and outputs seen while the ladder adapts (all rungs
together, uniform inputs among them), and frozen with it. From its tempered distribution a stretch is drawn
directly, given the sites to either side and at any temperature; the Metropolis-Hastings choice corrects for
the rest of the output. The paper has no such move.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.omniinput.sampling.kernels.pairs import Redrawing, pair_places

Array = NDArray[np.float64]

MOST_PARAMETERS = 100_000  # pairs of values; with more, proposals stay uniform
LEAST_ROWS, MOST_ROWS, MOST_PAIRS = 1_000, 20_000, 1_000_000  # to fit to; eight states per term are enough
DAMPING = 0.1  # of the least squares, against pairs that were hardly seen
LOWEST = -300.0  # of a log weight


@dataclass(eq=False)
class Surrogate(Redrawing):
    """One evaluation per row; all rows share a stretch. Before there is a fit, one site is redrawn
    uniformly."""

    chain: ClassVar[bool] = False
    kept: ClassVar[tuple[str, ...]] = ("sites", "outputs")

    sites: Tensor | None = field(default=None, repr=False)
    outputs: Tensor | None = field(default=None, repr=False)

    def watch(self, sites: Tensor, outputs: Tensor, rungs: int, values: int) -> None:
        """Keep states from all of the adaptation, later ones more densely."""
        if (values + 1) * values > MOST_PARAMETERS or sites.shape[1] < 2:
            return
        most = min(MOST_ROWS, MOST_PAIRS // sites.shape[1], max(LEAST_ROWS, 8 * (values + 1) * values))
        if self.sites is not None and self.outputs is not None:
            sites, outputs = torch.cat([self.sites, sites]), torch.cat([self.outputs, outputs])
        if len(sites) > most:
            # Neighbours in time are alike: of the older half every other one is enough.
            stay = np.concatenate([np.arange(0, most // 2, 2), np.arange(most // 2, len(sites))])[-most:]
            sites, outputs = sites[stay], outputs[stay]
        self.sites, self.outputs = sites, outputs

    def learn(self, nearest: NDArray[np.int64], betas: Array, values: int, frozen: bool) -> None:
        """Weights exp(-beta times the fitted term) for every rung of a new ladder."""
        if self.sites is None or self.outputs is None:
            return
        terms = fitted_terms(self.sites.numpy(), self.outputs.numpy(), values)
        logs = -betas[:, None, None] * terms
        logs -= logs.max(axis=(1, 2), keepdims=True)
        self._reweighted(torch.from_numpy(np.exp(np.maximum(logs, LOWEST))), frozen)
        if frozen:
            self.sites = self.outputs = None


def fitted_terms(sites: NDArray[np.int64], outputs: Array, values: int) -> Array:
    """The term of each value after each other one, (values + 1, values), whose sums come nearest to outputs.

    Only sums matter, so what all inputs share stays out. Time is that of some hundred passes over the pairs.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.linalg import lsqr

    rows, length = sites.shape
    shape = rows, (values + 1) * values
    starts = np.arange(0, rows * length + 1, length)
    design = csr_array((np.ones(rows * length), pair_places(sites, values).ravel(), starts), shape=shape)
    found = lsqr(design, outputs - outputs.mean(), damp=DAMPING, iter_lim=200)[0]
    return np.asarray(found).reshape(values + 1, values)
