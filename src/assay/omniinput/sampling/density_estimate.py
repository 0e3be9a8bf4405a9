"""DensityEstimate: log density per reported bin with its block-bootstrap error, from a LadderRecord."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from assay.omniinput.sampling.ladder_record import LadderRecord
from assay.omniinput.sampling.reweighting import Nearby, reweighted, summed_by
from assay.omniinput.sampling.time_blocks import burned_in, correlation_time, presence_floor

Array = NDArray[np.float64]

LEAST_BLOCKS = 8
RESAMPLES = 100


class Solver(Protocol):
    """From counts in fine bins, of all replicas together, to log counts of inputs up to a constant."""

    def solve(self, outputs: Array, counts: Array) -> tuple[Array, Array]:
        """Log counts, and the solution they follow from (empty if there is nothing to solve)."""

    def nearby(self, outputs: Array, counts: Array, solution: Array) -> Callable[[Array], Array]:
        """The log counts as a function of other counts; fast if those resemble the counts given."""


@dataclass(frozen=True)
class DensityEstimate:
    """Log density of each reported bin (NaN if never visited), with its errors and how they were found.

    `resamples` are bootstrap resamples of the log density, `by_ensemble` is the log density from each
    ensemble alone, `dropped` the number of the `blocks` left out as burn-in, `correlation` the factor by
    which correlation of consecutive blocks increased variances, and `inflation` the factor by which
    disagreement of the ensembles increased errors.
    """

    log_density: Array
    error: Array
    resamples: Array
    by_ensemble: Array
    solution: Array
    blocks: int
    dropped: int
    steps: float
    correlation: float = 1.0
    inflation: float = 1.0


@dataclass(frozen=True)
class LadderSolver:
    """WHAM over the rungs of a ladder, which all have the same number of samples."""

    betas: Array

    def solve(self, outputs: Array, counts: Array) -> tuple[Array, Array]:
        result = reweighted(outputs, counts, self.betas, self._draws(counts))
        return result.log_counts, result.free_energies

    def nearby(self, outputs: Array, counts: Array, solution: Array) -> Callable[[Array], Array]:
        return Nearby.of(outputs, self.betas, self._draws(counts), solution).log_counts

    def _draws(self, counts: Array) -> Array:
        return np.full(len(self.betas), counts.sum() / len(self.betas))


@dataclass(frozen=True)
class Anchor:
    """A known sum: over all inputs, exp(-beta z) adds up to exp(log_total), in units of the number of inputs.

    The number of inputs itself (beta 0, log_total 0) for any model; for a language model also beta 1.
    """

    beta: float = 0.0
    log_total: float = 0.0


ALL_INPUTS = Anchor()


def estimate(record: LadderRecord, solver: Solver, seed: int, anchor: Anchor = ALL_INPUTS) -> DensityEstimate:
    """Solve once for all blocks after burn-in, once per ensemble, and once per bootstrap resample.

    Blocks of time are drawn with replacement, separately for each ensemble, so that correlation inside a
    block does no harm (block bootstrap; counting errors were off by a factor of 34). In a short run the
    blocks are shorter than the memory of the walkers: the effect of leaving each block out shows how
    correlated neighbouring blocks still are, and any further disagreement of the ensembles is added on top.
    """
    blocks = record.blocks.whole()
    series = (blocks["rungs"] / blocks["steps"][:, None, None]).reshape(len(blocks["steps"]), -1)
    dropped = burned_in(series)
    counts, sums, steps = (blocks[name][dropped:] for name in ("counts", "sums", "steps"))
    total = counts.sum(axis=(0, 1))
    outputs = np.divide(sums.sum(axis=(0, 1)), total, out=np.zeros_like(total), where=total > 0)
    owner, bins = record.owner, len(record.edges) - 1

    def density(log_counts: Array) -> Array:
        constant = anchor.log_total - logsumexp(log_counts - anchor.beta * outputs)
        return summed_by(owner, log_counts + constant, bins)

    ensembles = record.ensembles
    log_counts, solution = solver.solve(outputs, total)
    whole = density(log_counts)
    again = solver.nearby(outputs, total, solution)
    alone = [density(again(counts[:, e].sum(axis=0))) for e in range(ensembles)]
    drawn_densities = []
    generator = np.random.default_rng(seed)
    shares = np.full(len(steps), 1 / len(steps))
    for _ in range(RESAMPLES if len(steps) >= LEAST_BLOCKS else 0):
        drawn = generator.multinomial(len(steps), shares, size=ensembles).astype(np.float64)
        drawn_densities.append(density(again(np.einsum("eb,bef->f", drawn, counts))))
    present = np.stack(
        [_visited(counts[b, e], owner, bins) for b in range(len(steps)) for e in range(ensembles)]
    )
    resamples = np.array(drawn_densities).reshape(-1, bins)
    apart = np.array([np.where(np.isfinite(one), one, np.nan) for one in alone])
    halves = np.stack(
        [half.sum(axis=1) for half in np.array_split(counts, min(2, ensembles), axis=1)], axis=1
    )
    left_out = np.array([[density(again(total - part)) for part in block] for block in halves])
    correlation = _correlation(left_out)
    error = bootstrap_error(resamples, present, len(steps)) * np.sqrt(correlation)
    scale = inflation(apart, error)
    return DensityEstimate(
        np.where(np.isfinite(whole), whole, np.nan),
        error * scale,
        spread_out(resamples, whole, scale * np.sqrt(correlation)),
        apart,
        solution,
        len(blocks["steps"]),
        dropped,
        float(steps.sum()) * ensembles,
        correlation,
        scale,
    )


def _correlation(left_out: Array) -> float:
    """The correlation time of the effect of each block, from the log density without it.

    Bins visited in a single block tell nothing about it, nor do bins that never vary.
    """
    if len(left_out) < LEAST_BLOCKS:
        return 1.0
    known = np.isfinite(left_out).all(axis=(0, 1))
    influences = left_out[:, :, known].mean(axis=0) - left_out[:, :, known]
    influences = influences[:, :, influences.std(axis=(0, 1)) > 1e-9]
    return correlation_time(influences) if influences.shape[2] else 1.0


def inflation(by_ensemble: Array, error: Array) -> float:
    """By how much errors must grow for independent ensembles to differ as they do (Birge ratio).

    If a run is stuck in one region, none of its blocks shows it; only independent ensembles do.
    """
    if len(by_ensemble) < 2:
        return 1.0
    ratios = by_ensemble.var(axis=0, ddof=1) / (len(by_ensemble) * np.maximum(error, 1e-6) ** 2)
    known = ratios[np.isfinite(ratios)]
    return max(1.0, float(np.sqrt(known.mean()))) if len(known) else 1.0


def bootstrap_error(resamples: Array, present: NDArray[np.bool_], blocks: int) -> Array:
    """The spread of the resamples, but at least the error implied by how many blocks visited the bin."""
    floor = presence_floor(present)
    if len(resamples) == 0:
        return np.where(np.isfinite(floor), np.inf, np.nan)
    finite = np.where(np.isfinite(resamples), resamples, np.nan)
    seen = np.isfinite(finite).sum(axis=0) >= 2
    spread = np.full(resamples.shape[1], np.inf)
    spread[seen] = np.nanstd(finite[:, seen], axis=0, ddof=1) * np.sqrt(blocks / max(blocks - 1, 1))
    return np.asarray(np.where(np.isfinite(floor), np.fmax(spread, floor), np.nan))


def spread_out(resamples: Array, centre: Array, scale: float | Array) -> Array:
    """The resamples with their distance from the estimate scaled; missing values stay missing."""
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(resamples), centre + scale * (resamples - centre), resamples)


def _visited(counts: Array, owner: NDArray[np.int64], bins: int) -> NDArray[np.bool_]:
    inside = (owner >= 0) & (counts > 0)
    return np.bincount(owner[inside], minlength=bins) > 0
