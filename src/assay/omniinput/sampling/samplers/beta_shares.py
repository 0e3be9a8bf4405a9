"""Beta shares: how far each beta counts at an output, and how many of the sequences it gets.

Selected sequences have no known q, so each beta counts where its own outputs lie: by c_j(z), proportional to
n_j exp(-beta_j z) / Z_j and adding up to one over the betas.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

Array = NDArray[np.float64]

LEAST_SHARE = 0.25  # of its equal share of the sequences, that a beta gets at least


def log_trust(log_likelihood: Array, betas: Array, log_totals: Array, sizes: NDArray[np.int64]) -> Array:
    """ln c of every beta at these outputs, (outputs, betas); `log_totals` is ln Z of every beta."""
    exponents = log_likelihood[:, None] * betas - log_totals + np.log(sizes)
    return np.asarray(exponents - logsumexp(exponents, axis=1, keepdims=True))


def needed_shares(logs: Array, by_beta: Array, sizes: NDArray[np.int64]) -> Array:
    """Shares of the sequences for which the relative variances of all bins add up to least.

    `logs` is ln of the weight in every bin, a row per block of time, and `by_beta` (betas, bins) how much of
    it all in all came from the sequences of each beta. The variance of a bin belongs to them in proportion,
    and falls as one over their number; so they need sequences as the square root of it times those they had
    (Neyman 1934).
    """
    seen = np.isfinite(logs).any(axis=0)
    logs, by_beta = logs[:, seen], by_beta[:, seen]
    parts = np.exp(logs - logsumexp(logs, axis=0))
    variance = ((parts - 1 / len(logs)) ** 2).sum(axis=0)
    needed = np.sqrt(sizes * (np.exp(by_beta - logsumexp(by_beta, axis=0)) @ variance))
    return np.asarray(LEAST_SHARE / len(needed) + (1 - LEAST_SHARE) * needed / needed.sum())
