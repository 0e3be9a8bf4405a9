"""Cross-model normalisation: compare two models, sampled separately, through the inputs they share."""

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from assay.errors import InputError
from assay.omniinput.sampling.convergence import shared_reasons
from assay.omniinput.sampling.distribution import OutputDistribution
from assay.omniinput.sampling.problem import OutputFunction

Array = NDArray[np.float64]


def cross_model_normalised(
    first: OutputDistribution,
    second: OutputDistribution,
    first_fn: OutputFunction,
    second_fn: OutputFunction,
    low: float,
    high: float,
    *,
    seed: int = 0,
) -> tuple[OutputDistribution, OutputDistribution]:
    """Both distributions in units of the inputs that either model maps into [low, high] (paper Eqs. 5, 6).

    The paper divides each histogram by the number of its own samples that both models place in the range.
    Here samples carry weights, so the divisor is the density of the bins in the range times the weighted
    share of their samples that the other model places there too. It is needed if the density has no absolute
    scale, because only part of the outputs was sampled; distributions over the entire space are comparable as
    they are. Each resample is divided by its own divisor, so that results derived from it include the
    uncertainty of the divisor. Over the entire space both divisors count the same inputs: where they differ
    beyond chance, neither result has converged, and says so.
    """
    generator = np.random.default_rng(seed)
    both = (
        _normalised(first, second_fn, low, high, generator),
        _normalised(second, first_fn, low, high, generator),
    )
    if first.normalisation == second.normalisation == "entire":
        (one, one_error), (two, two_error) = (
            (dist.diagnostics["log_shared"], dist.diagnostics["log_shared_error"]) for dist in both
        )
        reasons = shared_reasons(one, two, math.hypot(one_error, two_error))
        first, second = (dataclasses.replace(dist, reasons=(*dist.reasons, *reasons)) for dist in both)
        return first, second
    return both


def _normalised(
    dist: OutputDistribution, other: OutputFunction, low: float, high: float, generator: np.random.Generator
) -> OutputDistribution:
    inside = [
        bin
        for bin in np.flatnonzero(dist.visited)
        if dist.edges[bin] >= low and dist.edges[bin + 1] <= high and len(dist.samples(int(bin)))
    ]
    shared, variance, resamples = [], [], []
    for bin in map(int, inside):
        outputs = other(dist.samples(bin)).detach().double().cpu().numpy()
        weights = dist.weights(bin)
        share = float(weights @ ((outputs >= low) & (outputs <= high)))
        if share > 0:
            shared.append(dist.log_density[bin] + np.log(share))
            effective = 1 / float(weights @ weights)
            variance.append((1 - share) / (share * effective) + dist.error[bin] ** 2)
            count = len(dist.resamples)
            shares = generator.beta(share * effective + 0.5, (1 - share) * effective + 0.5, count)
            resamples.append(dist.resamples[:, bin] + np.log(shares))
    if not shared:
        raise InputError(
            f"expected inputs that both models map to outputs between {low:g} and {high:g}, found none "
            "among the samples; choose a range in which both have samples"
        )
    log_shared = float(logsumexp(shared))
    portions = np.exp(np.array(shared) - log_shared)
    shared_error = float(np.sqrt(portions**2 @ np.array(variance)))
    return dataclasses.replace(
        dist,
        log_density=dist.log_density - log_shared,
        error=np.hypot(dist.error, shared_error),
        resamples=dist.resamples - logsumexp(np.stack(resamples), axis=0)[:, None],
        diagnostics={**dist.diagnostics, "log_shared": log_shared, "log_shared_error": shared_error},
        normalisation="cross-model",
    )
