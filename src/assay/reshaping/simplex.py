"""Least squares over shares: numbers that are not negative and add up to one."""

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import nnls

from assay.reshaping.array_types import Floats

RIDGE = 1e-10  # of the mean diagonal: keeps the factorisation alive where two columns are the same


def shares_fit(design: Floats, target: Floats) -> tuple[Floats, float]:
    """The shares q that minimise |design q - target|^2, and that minimum.

    Since q adds up to one, design q - target = Y q with Y = design - target 1^T. Along the ray s q the value
    of |Y s q|^2 + (1 - s)^2 is least at |Y q|^2 / (1 + |Y q|^2), which grows with |Y q|^2. So the best
    direction is that of a non-negative least-squares problem, which scipy solves, and its length is divided
    out. Exact, whatever the scale of Y.
    """
    apart = design - target[:, None]
    square = apart.T @ apart
    scale = max(float(np.trace(square)) / len(square), np.finfo(float).tiny)
    factor = cholesky(square / scale + 1.0 + RIDGE * np.eye(len(square)))
    free, _ = nnls(factor, solve_triangular(factor, np.ones(len(square)), trans="T"))
    shares: Floats = free / free.sum()
    return shares, float(shares @ square @ shares)
