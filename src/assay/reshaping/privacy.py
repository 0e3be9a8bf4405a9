"""Differential privacy for histograms: whole-number noise with a stated epsilon.

One input adds one count to one bin of every neuron. Between two sets that differ by one input the counts
differ by at most `neurons` in sum and by the square root of that in Euclidean length; noise is scaled to
these. The mechanisms are the two-sided geometric (Ghosh, Roughgarden and Sundararajan, 2009; delta is zero)
and the discrete Gaussian (Canonne, Kamath and Steinke, 2020; its epsilon follows from zero-concentrated
privacy by epsilon = rho + 2 sqrt(rho ln(1/delta)), which is an upper limit). Afterwards counts are made
consistent, which costs no privacy: each neuron's counts become non-negative whole numbers with one common
total.

numpy's generators are not cryptographic: a device that must withstand an attacker who knows its random state
needs another source of noise.
"""

import math
from dataclasses import dataclass

import numpy as np

from assay.errors import InputError
from assay.reshaping.array_types import Floats, Integers
from assay.storage import storable

MECHANISMS = ("geometric", "gaussian")


@storable("reshaping.Privacy")
@dataclass(frozen=True)
class Privacy:
    """(epsilon, delta) for adding or removing one input, and the mechanism that gives it."""

    epsilon: float
    delta: float = 0.0
    mechanism: str = "geometric"

    def __post_init__(self) -> None:
        if self.mechanism not in MECHANISMS:
            raise InputError(f"expected a mechanism of {list(MECHANISMS)}, got {self.mechanism!r}")
        if not (math.isfinite(self.epsilon) and self.epsilon > 0):
            raise InputError(f"expected a privacy epsilon above 0, got {self.epsilon}; 1 is a usual choice")
        if self.mechanism == "gaussian" and not 0 < self.delta < 1:
            raise InputError(
                f"expected a delta between 0 and 1 for the gaussian mechanism, got {self.delta}; "
                "take it well below one over the number of inputs"
            )

    def merged(self, other: "Privacy") -> "Privacy":
        """Each input is in one of the two histograms, so the weaker guarantee holds for all."""
        weaker = self if (self.epsilon, self.delta) >= (other.epsilon, other.delta) else other
        return Privacy(weaker.epsilon, max(self.delta, other.delta), weaker.mechanism)

    def describe(self) -> str:
        return f"differentially private (epsilon {self.epsilon:g}, delta {self.delta:g}, {self.mechanism})"

    def deviation(self, neurons: int) -> float:
        """Standard deviation of the noise in one cell."""
        if self.mechanism == "geometric":
            decay = math.exp(-self.epsilon / neurons)
            return math.sqrt(2 * decay) / (1 - decay)
        log = math.log(1 / self.delta)
        rho = (math.sqrt(log + self.epsilon) - math.sqrt(log)) ** 2
        return math.sqrt(neurons / (2 * rho))


def private_counts(
    counts: Integers, lengths: Integers, privacy: Privacy, seed: int | np.random.Generator | None
) -> tuple[Integers, int]:
    """Noisy counts with one total for all neurons, and that total; a neuron has the first `lengths` cells."""
    rng = np.random.default_rng(seed)
    neurons = len(counts)
    if privacy.mechanism == "geometric":
        success = 1 - math.exp(-privacy.epsilon / neurons)
        noise = rng.geometric(success, counts.shape) - rng.geometric(success, counts.shape)
    else:
        noise = discrete_gaussian(privacy.deviation(neurons), counts.size, rng).reshape(counts.shape)
    noisy = np.where(np.arange(counts.shape[1]) < lengths[:, None], counts + noise, 0)
    total = max(int(np.rint(noisy.sum(axis=1).mean())), 0)
    consistent = np.zeros_like(counts)
    for row, length in enumerate(lengths):
        consistent[row, :length] = _nearest_with_total(noisy[row, :length].astype(np.float64), total)
    return consistent, total


def discrete_gaussian(deviation: float, size: int, rng: np.random.Generator) -> Integers:
    """Whole numbers k with probability proportional to exp(-k^2 / (2 deviation^2)), by rejection.

    Proposals are two-sided geometric with scale t = floor(deviation) + 1, accepted with probability
    exp(-(|k| - deviation^2 / t)^2 / (2 deviation^2)) (Canonne, Kamath and Steinke, Algorithm 3).
    """
    scale = math.floor(deviation) + 1
    success = 1 - math.exp(-1 / scale)
    found: list[Integers] = []
    missing = size
    while missing > 0:
        proposals = rng.geometric(success, 2 * missing + 16) - rng.geometric(success, 2 * missing + 16)
        odds = np.exp(-((np.abs(proposals) - deviation**2 / scale) ** 2) / (2 * deviation**2))
        accepted = proposals[rng.random(len(proposals)) < odds][:missing]
        found.append(accepted)
        missing -= len(accepted)
    return np.concatenate(found).astype(np.int64) if found else np.empty(0, np.int64)


def _nearest_with_total(row: Floats, total: int) -> Integers:
    """The nearest non-negative row with this total (projection on a simplex), in whole numbers."""
    ordered = np.sort(row)[::-1]
    excess = (np.cumsum(ordered) - total) / np.arange(1, len(row) + 1)
    positive = np.flatnonzero(ordered > excess)
    shift = excess[positive[-1]] if len(positive) else excess[-1]
    nearest = np.maximum(row - shift, 0.0)
    whole: Integers = np.floor(nearest).astype(np.int64)
    missing = total - int(whole.sum())
    # The largest remainders are rounded up.
    whole[np.argsort(whole - nearest, kind="stable")[:missing]] += 1
    return whole
