"""The log density of weighted sequences, with its error over blocks of them, and their effective number."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from assay.omniinput.sampling.density_estimate import (
    LEAST_BLOCKS,
    RESAMPLES,
    DensityEstimate,
    bootstrap_error,
    spread_out,
)

Array = NDArray[np.float64]


def weighted_estimate(
    blocks: Mapping[str, Array], betas: Array, draws: int, seed: int, effective: Array
) -> DensityEstimate:
    """From ln of the weights in every bin and of the rows, per block; odd and even blocks are the two
    ensembles.

    Some forty blocks of skewed sums tell an error only roughly, and too small where the largest weights were
    not met, so it is never less than that of as many independent sequences as the bin has `effective` ones.
    """
    logs, rows = blocks["bins"], blocks["rows"]
    count = len(rows)

    def density(log_times: Array) -> Array:
        return np.asarray(logsumexp(logs + log_times[:, None], axis=0) - logsumexp(rows + log_times))

    with np.errstate(divide="ignore"):
        alone = [density(np.log(np.arange(count) % 2 == half)) for half in (0, 1)] if count > 1 else []
        generator = np.random.default_rng(seed)
        drawn = generator.multinomial(count, np.full(count, 1 / count), size=RESAMPLES)
        enough = RESAMPLES if count >= LEAST_BLOCKS else 0
        resamples = np.array([density(np.log(times)) for times in drawn[:enough]]).reshape(-1, logs.shape[1])
    whole = density(np.zeros(count))
    spread = bootstrap_error(resamples, np.isfinite(logs), count)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.maximum(spread, effective**-0.5)
        scale = np.where(spread > 0, error / spread, 1.0)
    return DensityEstimate(
        np.where(np.isfinite(whole), whole, np.nan),
        error,
        spread_out(resamples, whole, scale),
        np.array([np.where(np.isfinite(one), one, np.nan) for one in alone]).reshape(-1, len(whole)),
        betas,
        count,
        0,
        float(draws),
    )


def effective_sequences(blocks: Mapping[str, Array], selected: bool) -> Array:
    """Effective sample size of every bin, (sum w)^2 / sum w^2 over independent sequences.

    For selected sequences, the number of independent ones that would vary as much as rounds do.
    """
    with np.errstate(invalid="ignore"):
        logs = 2 * logsumexp(blocks["bins"], axis=0) - logsumexp(blocks["squares"], axis=0)
    found = np.where(np.isnan(logs), 0.0, np.exp(logs))
    if not selected:
        return np.asarray(found)
    rounds = np.exp(logsumexp(blocks["batches"]))
    excess = 1 / np.maximum(found, 1e-300) - 1 / rounds
    return np.asarray(np.where(found > 0, 1 / np.maximum(excess, 1e-9), 0.0))
