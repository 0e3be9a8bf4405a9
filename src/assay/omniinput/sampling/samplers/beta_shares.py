"""Beta shares: how far each beta counts at an output, and how many of the sequences it gets.

Selected sequences have no known q, so each beta counts where its own outputs lie: by c_j(z), proportional to
n_j exp(-beta_j z) / Z_j and adding up to one over the betas.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

Array = NDArray[np.float64]

LEAST_SHARE = 1 / 3  # of its equal share of the sequences, that a beta gets at least
STEPS = 300  # after which the worst bin is within a thousandth of the least possible


def log_trust(log_likelihood: Array, betas: Array, log_totals: Array, sizes: NDArray[np.int64]) -> Array:
    """ln c of every beta at these outputs, (outputs, betas); `log_totals` is ln Z of every beta."""
    exponents = log_likelihood[:, None] * betas - log_totals + np.log(sizes)
    return np.asarray(exponents - logsumexp(exponents, axis=1, keepdims=True))


def needed_shares(logs: Array, parts: Array, sizes: NDArray[np.int64]) -> Array:
    """Shares of the sequences for which the least certain bin is known best.

    `logs` is ln of the weight in every bin, a row per block of time, and `parts` (betas, bins) how far each
    beta counts in a bin, of one. The relative variance of a bin belongs to the betas in proportion, and falls
    as one over the number of their sequences.
    """
    seen = np.isfinite(logs).any(axis=0)
    logs = logs[:, seen]
    weights = np.exp(logs - logsumexp(logs, axis=0))
    variance = ((weights - 1 / len(logs)) ** 2).sum(axis=0)
    needed = least_worst_shares(sizes[:, None] * parts[:, seen] * variance)
    return np.asarray(LEAST_SHARE / len(needed) + (1 - LEAST_SHARE) * needed)


def least_worst_shares(variances: Array) -> Array:
    """Shares s >= 0, adding up to one, with the least max over columns b of sum_j variances[j, b] / s_j.

    If the sum over columns counts, weighted, then s_j is as the square root of its weighted row (Neyman
    1934). The weights at which that sum is largest make it the maximum, because it is concave in them: a
    column gains weight as its own sum exceeds the mean.
    """
    variances = variances + 1e-30  # so that a row may be zero
    weights = np.full(variances.shape[1], 1 / variances.shape[1])
    for _ in range(STEPS):
        needed = np.sqrt(variances @ weights)
        shares = needed / needed.sum()
        weights = weights * np.sqrt((variances / shares[:, None]).sum(axis=0))
        weights /= weights.sum()
    return np.asarray(shares)
