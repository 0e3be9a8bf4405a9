"""Resampling of sequences on their way (sequential Monte Carlo; Del Moral, Doucet and Jasra 2006)."""

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import logsumexp

Array = NDArray[np.float64]


def resampled(
    log_weights: Array, least: float, generator: torch.Generator
) -> tuple[NDArray[np.int64], float] | None:
    """The row each row goes on from, and the share of groups that were resampled; None where none was.

    `log_weights` are (groups, rows). A group whose effective share of rows is under `least` is resampled
    systematically, and its log weights are set to their common mean, in place.
    """
    size = log_weights.shape[1]
    shares = np.exp(log_weights - log_weights.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    poor = 1 / (shares**2).sum(axis=1) < least * size
    if not poor.any():
        return None
    origin = np.arange(log_weights.size).reshape(log_weights.shape)
    offset = torch.rand(len(log_weights), dtype=torch.float64, generator=generator).numpy()
    for group in np.flatnonzero(poor):
        places = (np.arange(size) + offset[group]) / size
        found = np.searchsorted(shares[group].cumsum(), places).clip(max=size - 1)
        origin[group] = group * size + found
        log_weights[group] = logsumexp(log_weights[group]) - np.log(size)
    return origin, float(poor.mean())
