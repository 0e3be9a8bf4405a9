"""Convergence: the checks a distribution must pass, each with the sentence that says what failed."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LEAST_SWAP_ACCEPTANCE = 0.2
LEAST_ROUND_TRIPS = 20
LEAST_EFFECTIVE = 25.0  # a standard error of 0.2 nats
LEAST_IMPORTANCE_EFFECTIVE = 300.0


def gap_reasons(log_density: Array) -> list[str]:
    """Empty bins between visited ones: the sampler did not pass, or the output has no such values."""
    seen = np.flatnonzero(~np.isnan(log_density))
    if not len(seen):
        return ["no bin was visited"]
    gaps = np.flatnonzero(np.isnan(log_density[seen[0] : seen[-1]])) + seen[0]
    return [f"no sample fell in bins {_listed(gaps)} between visited ones"] if len(gaps) else []


def agreement(by_ensemble: Array, error: Array) -> tuple[float, list[str]]:
    """How far two independent ensembles are apart at most, in standard errors of their difference.

    Either half has sqrt 2 times the error of the whole, so their difference has twice it. With many bins a
    few exceed three by chance; more than one in twenty, or one beyond six, is disagreement.
    """
    if len(by_ensemble) < 2:
        return float("nan"), ["there is no second ensemble to agree with"]
    apart = np.abs(by_ensemble[0] - by_ensemble[1])
    both = np.isfinite(apart) & np.isfinite(error)
    if not both.any():
        return float("nan"), ["the two ensembles have no bin in common"]
    scaled = apart[both] / (2 * np.maximum(error[both], 0.005))
    worst = float(scaled.max())
    failed = (scaled > 3).mean() > 0.05 or worst > 6
    lone = np.isnan(by_ensemble[0]) != np.isnan(by_ensemble[1])
    reasons = [f"two independent ensembles disagree by up to {apart[both].max():.2g} nats"] if failed else []
    if lone.any():
        reasons.append(f"only one of two ensembles reached bins {_listed(np.flatnonzero(lone))}")
    return worst, reasons


def effective_reasons(effective: Array, log_density: Array, least: float) -> list[str]:
    """Visited bins known from too few independent samples."""
    weak = np.flatnonzero(~np.isnan(log_density) & ~(effective >= least))
    return [f"the effective sample size is under {least:g} in bins {_listed(weak)}"] if len(weak) else []


def ladder_reasons(swap_acceptance: Array, round_trips: int) -> list[str]:
    """A ladder with a gap, or walkers that never crossed it."""
    reasons = []
    if len(swap_acceptance) and swap_acceptance.min() < LEAST_SWAP_ACCEPTANCE:
        reasons.append(
            f"the lowest swap acceptance is {swap_acceptance.min():.2f}, under {LEAST_SWAP_ACCEPTANCE}"
        )
    return reasons + trip_reasons(round_trips)


def trip_reasons(round_trips: int) -> list[str]:
    if round_trips >= LEAST_ROUND_TRIPS:
        return []
    return [f"walkers made {round_trips} round trips, under {LEAST_ROUND_TRIPS}"]


def anchor_reasons(inputs: float, likelihood: float, error: float) -> list[str]:
    """Importance weights must add up to the number of inputs, and to the known total likelihood."""
    allowed = max(0.1, 4 * error)
    reasons = []
    if abs(inputs) > allowed:
        reasons.append(f"the weights add up to e^{inputs:.2g} times the number of inputs")
    if abs(likelihood) > allowed:
        reasons.append(f"the likelihoods add up to e^{likelihood:.2g} times their known sum")
    return reasons


def _listed(bins: NDArray[np.int64]) -> str:
    """Bins as runs: 0-3, 7."""
    runs = np.split(bins, np.flatnonzero(np.diff(bins) > 1) + 1)
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
