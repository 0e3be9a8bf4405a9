"""Independent estimates of one output distribution, joined."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from assay.omniinput.sampling import convergence
from assay.omniinput.sampling.density_estimate import inflation
from assay.omniinput.sampling.distribution import OutputDistribution, Samples

Array = NDArray[np.float64]


def pooled(parts: Sequence[OutputDistribution]) -> OutputDistribution:
    """The mean of the log densities, each bin of each part weighted by its precision 1 / error^2.

    Errors grow by the Birge ratio if the parts differ more than they should: independent runs show errors
    that no single run can detect. The result has converged if it passes as a whole: enough effective samples
    in sum, parts that agree, no gap, and every part moved along its ladder.
    """
    logs, errors = (np.stack([getattr(part, name) for part in parts]) for name in ("log_density", "error"))
    usable = np.isfinite(logs) & np.isfinite(errors)
    precision = np.where(usable, 1 / np.maximum(errors, 1e-6) ** 2, 0.0)
    # If no part has an error for a bin, the bin is the mean of the parts that reached it.
    shares = np.where(precision.sum(axis=0) > 0, precision, np.isfinite(logs))
    total = shares.sum(axis=0)
    shares = np.divide(shares, total, out=np.zeros_like(shares), where=total > 0)
    log_density = np.where(total > 0, _weighted(shares, logs), np.nan)
    known = precision.sum(axis=0)
    error = np.where(known > 0, 1 / np.sqrt(np.maximum(known, 1e-300)), np.where(total > 0, np.inf, np.nan))
    scale = inflation(np.where(usable, logs, np.nan), error)
    effective = np.where(known > 0, known / scale**2, 0.0)
    apart, reasons = _agreement(logs, errors)
    reasons += convergence.gap_reasons(log_density)
    reasons += convergence.effective_reasons(effective, log_density, convergence.LEAST_EFFECTIVE)
    still = [
        reason for part in parts for reason in part.reasons if reason.failure in convergence.LADDER_FAILURES
    ]
    return replace(
        parts[0],
        log_density=log_density,
        error=error * scale,
        kept=_kept(parts, shares),
        resamples=_resamples(parts, shares, log_density, scale),
        diagnostics=_diagnostics(parts, effective, apart, scale),
        reasons=(*reasons, *dict.fromkeys(still)),
    )


def _weighted(shares: Array, logs: Array) -> Array:
    return np.asarray((shares * np.where(shares > 0, logs, 0.0)).sum(axis=0))


def _agreement(logs: Array, errors: Array) -> tuple[float, list[convergence.Reason]]:
    """The worst disagreement of two neighbouring parts."""
    found = [
        convergence.agreement(logs[k : k + 2], np.sqrt(errors[k] ** 2 + errors[k + 1] ** 2) / 2)
        for k in range(len(logs) - 1)
    ]
    disagreements = [
        reason for _, one in found for reason in one if reason.failure is convergence.Failure.DISAGREEMENT
    ]
    return float(np.fmax.reduce([apart for apart, _ in found])), disagreements[:1]


def _resamples(parts: Sequence[OutputDistribution], shares: Array, centre: Array, scale: float) -> Array:
    """Resamples of the joint density from the same number of resamples of each part."""
    count = min(len(part.resamples) for part in parts)
    resamples = np.stack([part.resamples[:count] for part in parts])
    held = np.where(np.isfinite(resamples), shares[:, None], 0.0)
    total = held.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mixed = (held * np.where(held > 0, resamples, 0.0)).sum(axis=0) / total
        return np.where(total > 0, centre + scale * (mixed - centre), np.nan)


def _kept(parts: Sequence[OutputDistribution], shares: Array) -> Samples:
    """The inputs of all parts, weighted by the share of each part in the bin."""
    weights = []
    for part, share in zip(parts, shares, strict=True):
        own = part.kept.log_weights.astype(float).copy()
        for bin in np.unique(part.kept.bins):
            rows = part.kept.bins == bin
            with np.errstate(divide="ignore"):
                own[rows] += np.log(share[bin]) - logsumexp(own[rows])
        weights.append(own)
    return Samples.joined(
        [replace(part.kept, log_weights=own) for part, own in zip(parts, weights, strict=True)]
    )


def _diagnostics(
    parts: Sequence[OutputDistribution], effective: Array, apart: float, scale: float
) -> dict[str, object]:
    """Diagnostics of the joint result; sums where sums make sense."""
    first = parts[0].diagnostics
    summed = {
        name: sum(part.diagnostics[name] for part in parts)
        for name in ("evaluations", "seconds", "model_seconds", "round_trips")
        if name in first
    }
    return summed | {
        "sampler": f"{first['sampler']}, {len(parts)} ladders",
        "ladders": len(parts),
        "effective_sample_size": effective,
        "ladders_log_density": np.stack([part.log_density for part in parts]),
        "ladders_apart": apart,
        "error_inflation": scale,
        "time_blocks": sum(part.diagnostics["time_blocks"] for part in parts),
    }
