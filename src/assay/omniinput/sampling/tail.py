"""TailProbability: how likely an output beyond an edge is, with its interval, however rare."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import logsumexp

from assay.errors import InputError
from assay.statistics import normal_interval

if TYPE_CHECKING:
    from assay.omniinput.sampling.distribution import OutputDistribution


@dataclass(frozen=True)
class TailProbability:
    """A probability with an interval; `log_value` and its standard error `error` are natural logs, which do
    not run out of range. `found` is False if no sample lay there: then the value is unknown, not zero."""

    value: float
    lower: float
    upper: float
    log_value: float
    error: float
    found: bool


def tail_probability(
    dist: "OutputDistribution", above: float | None, below: float | None, level: float
) -> TailProbability:
    """The sum over the bins beyond an edge; its error from the same resamples as those of the bins.

    Errors of neighbouring bins are correlated, so that they cannot be added up.
    """
    edge = above if above is not None else below
    if edge is None or (above is not None and below is not None):
        raise InputError("expected either above= or below=, got both or none; give one edge of the bins")
    nearest = int(np.abs(dist.edges - edge).argmin())
    if not np.isclose(dist.edges[nearest], edge, rtol=1e-9, atol=1e-9):
        raise InputError(
            f"expected an edge of the bins, got {edge:g}; the nearest is {dist.edges[nearest]:g}, or sample "
            f"again with {edge:g} among the edges"
        )
    inside = slice(nearest, None) if above is not None else slice(0, nearest)
    log_density = dist.log_density[inside]
    found = bool(np.isfinite(log_density).any())
    if not found:
        return TailProbability(np.nan, 0.0, 1.0, np.nan, np.nan, False)
    log_value = float(logsumexp(log_density[np.isfinite(log_density)]))
    resamples = dist.resamples[:, inside]
    sums = logsumexp(np.where(np.isfinite(resamples), resamples, -np.inf), axis=1)
    sums = sums[np.isfinite(sums)]
    spread = float(np.std(sums, ddof=1)) if len(sums) > 1 else np.inf
    # The largest bin decides the sum: no sum is known better than the floor of its error allows.
    largest = int(np.nanargmax(log_density))
    error = max(spread, _floor(dist, inside, largest))
    low, high = normal_interval(log_value, error, level, largest=0.0)
    return TailProbability(
        float(np.exp(log_value)), float(np.exp(low)), float(np.exp(high)), log_value, error, True
    )


def _floor(dist: "OutputDistribution", inside: slice, largest: int) -> float:
    """The error stated for the largest bin, if resamples of that bin vary less than it says."""
    error = float(dist.error[inside][largest])
    own = dist.resamples[:, inside][:, largest]
    own = own[np.isfinite(own)]
    if not np.isfinite(error):
        return np.inf
    return error if len(own) < 2 or np.std(own, ddof=1) < 0.9 * error else 0.0
