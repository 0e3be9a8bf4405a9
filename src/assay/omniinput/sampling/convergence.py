"""Convergence: the checks a distribution must pass, and a Reason for each one that failed."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.storage import storable

Array = NDArray[np.float64]

LEAST_SWAP_ACCEPTANCE = 0.2
LEAST_ROUND_TRIPS = 20
LEAST_EFFECTIVE = 25.0  # a standard error of 0.2 nats
LEAST_IMPORTANCE_EFFECTIVE = 300.0
LEAST_SELECTED_EFFECTIVE = 100.0  # a standard error of 0.1 nats


class Failure(StrEnum):
    """Which check failed."""

    NOTHING_VISITED = "nothing visited"
    GAP = "gap"
    NO_SECOND_ENSEMBLE = "no second ensemble"
    DISAGREEMENT = "disagreement"
    ONE_ENSEMBLE_ONLY = "one ensemble only"
    FEW_EFFECTIVE_SAMPLES = "few effective samples"
    SWAP_ACCEPTANCE = "swap acceptance"
    ROUND_TRIPS = "round trips"
    KNOWN_SUM = "known sum"


LADDER_FAILURES = frozenset({Failure.SWAP_ACCEPTANCE, Failure.ROUND_TRIPS})
"""Failures of the walk itself, which a second run cannot make up for."""


@storable("omniinput.Reason")
@dataclass(frozen=True)
class Reason:
    """Why a distribution has not converged: the check that failed, and a sentence with the figures."""

    failure: Failure
    sentence: str

    def __str__(self) -> str:
        return self.sentence

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> "Reason":
        return cls(Failure(state["failure"]), state["sentence"])


def gap_reasons(log_density: Array) -> list[Reason]:
    """Empty bins between visited ones: the sampler missed them, or the output has no such values."""
    seen = np.flatnonzero(~np.isnan(log_density))
    if not len(seen):
        return [Reason(Failure.NOTHING_VISITED, "no bin was visited")]
    gaps = np.flatnonzero(np.isnan(log_density[seen[0] : seen[-1]])) + seen[0]
    if not len(gaps):
        return []
    return [Reason(Failure.GAP, f"no sample fell in bins {_listed(gaps)} between visited ones")]


def agreement(by_ensemble: Array, error: Array) -> tuple[float, list[Reason]]:
    """How far two independent ensembles are apart at most, in standard errors of their difference.

    Either half has sqrt 2 times the error of the whole, so their difference has twice it. With many bins a
    few exceed three by chance; more than one in twenty, or one beyond six, is disagreement.
    """
    if len(by_ensemble) < 2:
        return float("nan"), [Reason(Failure.NO_SECOND_ENSEMBLE, "there is no second ensemble to agree with")]
    apart = np.abs(by_ensemble[0] - by_ensemble[1])
    both = np.isfinite(apart) & np.isfinite(error)
    if not both.any():
        return float("nan"), [Reason(Failure.NO_SECOND_ENSEMBLE, "the two ensembles have no bin in common")]
    scaled = apart[both] / (2 * np.maximum(error[both], 0.005))
    worst = float(scaled.max())
    failed = (scaled > 3).mean() > 0.05 or worst > 6
    lone = np.isnan(by_ensemble[0]) != np.isnan(by_ensemble[1])
    reasons = []
    if failed:
        sentence = f"two independent ensembles disagree by up to {apart[both].max():.2g} nats"
        reasons.append(Reason(Failure.DISAGREEMENT, sentence))
    if lone.any():
        sentence = f"only one of two ensembles reached bins {_listed(np.flatnonzero(lone))}"
        reasons.append(Reason(Failure.ONE_ENSEMBLE_ONLY, sentence))
    return worst, reasons


def effective_reasons(effective: Array, log_density: Array, least: float) -> list[Reason]:
    """Visited bins known from too few independent samples."""
    weak = np.flatnonzero(~np.isnan(log_density) & ~(effective >= least))
    if not len(weak):
        return []
    sentence = f"the effective sample size is under {least:g} in bins {_listed(weak)}"
    return [Reason(Failure.FEW_EFFECTIVE_SAMPLES, sentence)]


def ladder_reasons(swap_acceptance: Array, round_trips: int) -> list[Reason]:
    """A ladder with a gap, or walkers that never crossed it."""
    reasons = []
    if len(swap_acceptance) and swap_acceptance.min() < LEAST_SWAP_ACCEPTANCE:
        sentence = f"the lowest swap acceptance is {swap_acceptance.min():.2f}, under {LEAST_SWAP_ACCEPTANCE}"
        reasons.append(Reason(Failure.SWAP_ACCEPTANCE, sentence))
    return reasons + trip_reasons(round_trips)


def trip_reasons(round_trips: int) -> list[Reason]:
    if round_trips >= LEAST_ROUND_TRIPS:
        return []
    sentence = f"walkers made {round_trips} round trips, under {LEAST_ROUND_TRIPS}"
    return [Reason(Failure.ROUND_TRIPS, sentence)]


def anchor_reasons(inputs: float, likelihood: float, error: float) -> list[Reason]:
    """Importance weights must add up to the number of inputs, and to the known total likelihood."""
    allowed = max(0.1, 4 * error)
    reasons = []
    if abs(inputs) > allowed:
        sentence = f"the weights add up to e^{inputs:.2g} times the number of inputs"
        reasons.append(Reason(Failure.KNOWN_SUM, sentence))
    if abs(likelihood) > allowed:
        sentence = f"the likelihoods add up to e^{likelihood:.2g} times their known sum"
        reasons.append(Reason(Failure.KNOWN_SUM, sentence))
    return reasons


def shared_reasons(first: float, second: float, error: float) -> list[Reason]:
    """The inputs that two models both place in a range, counted from either side, are the same."""
    if abs(first - second) <= max(0.1, 4 * error):
        return []
    sentence = f"the inputs that both models share were counted twice, {abs(first - second):.2g} nats apart"
    return [Reason(Failure.DISAGREEMENT, sentence)]


def _listed(bins: NDArray[np.int64]) -> str:
    """Bins as runs: 0-3, 7."""
    runs = np.split(bins, np.flatnonzero(np.diff(bins) > 1) + 1)
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
