"""Histogram reweighting: from counts at many inverse temperatures to the number of inputs per output value.

The weighted histogram analysis method (Ferrenberg and Swendsen 1989) on bins so fine that it equals MBAR
(Shirts and Chodera 2008); with one bin per sample it is MBAR. Reweighting on the reported bins is biased by
0.3 to 2.8 nats (docs/papers/omniinput.md) and is not offered. Implemented here because the solver of pymbar
needs every sample in memory and is far too slow inside a bootstrap; the tests compare the two.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

Array = NDArray[np.float64]

LONGEST_STEP = 5.0  # nats, of Newton's method in one direction: beyond that its quadratic model is poor
MOST_STEPS = 500


@dataclass(frozen=True)
class Reweighting:
    """Free energies f_k of the replicas, and the log number of inputs of each fine bin up to a constant."""

    free_energies: Array
    log_counts: Array


def reweighted(outputs: Array, counts: Array, betas: Array, draws: Array) -> Reweighting:
    """Solve WHAM by Newton's method.

    outputs (F,) and counts (F,): where the fine bins lie (means of the samples inside) and how many samples
    of all replicas together fell in; betas (K,), draws (K,): inverse temperature of each replica and how many
    samples it gave. Minimises the convex sum_b H_b ln sum_k N_k e^(f_k - beta_k z_b) - sum_k N_k f_k, whose
    gradient is zero where WHAM's equations hold; then ln Omega_b = ln H_b - ln sum_k N_k e^(f_k - beta_k
    z_b). An iteration costs F K^2.
    """
    filled = counts > 0
    z, weights = outputs[filled], counts[filled]
    exponents = np.log(draws) - z[:, None] * betas
    f = _integrated(z, weights, betas)
    value = _objective(exponents, weights, draws, f)
    for _ in range(MOST_STEPS):
        shifted = exponents + f
        step = _newton_step(np.exp(shifted - _row_logsumexp(shifted)[:, None]), weights, draws)
        scale = 1.0
        # Newton's full step may overshoot far from the minimum; halving it keeps the descent monotone.
        while (new := _objective(exponents, weights, draws, f - scale * step)) > value + 1e-12 * abs(value):
            scale /= 2
            if scale < 1e-6:
                break
        f, previous, value = f - scale * step, value, new
        if np.abs(step).max() < 1e-9 or (scale == 1.0 and previous - value <= 1e-13 * abs(value)):
            break
    log_counts = np.full(len(counts), -np.inf)
    log_counts[filled] = np.log(weights) - logsumexp(exponents + f, axis=1)
    return Reweighting(f, log_counts)


@dataclass(frozen=True)
class Nearby:
    """WHAM for other counts of the same bins and replicas, near a solution f: what a bootstrap needs.

    With d = f' - f, the mixture is mix(f') = mix(f) sum_k share_k e^(d_k), where share_k is the part of
    replica k in it. So after the shares are known once, Newton's method needs products of matrices only and
    no exponentials of bins x replicas, which used to make the bootstrap the larger part of a short run.
    """

    shares: Array
    log_mixture: Array
    portions: Array  # of all draws, per replica

    @classmethod
    def of(cls, outputs: Array, betas: Array, draws: Array, free_energies: Array) -> "Nearby":
        exponents = np.log(draws) + free_energies - outputs[:, None] * betas
        mixture = _row_logsumexp(exponents)
        return cls(np.exp(exponents - mixture[:, None]), mixture, draws / draws.sum())

    def log_counts(self, counts: Array) -> Array:
        """ln Omega of each fine bin, up to a constant; -inf where it has no counts."""
        filled = counts > 0
        shares, weights = self.shares[filled], counts[filled]
        draws = self.portions * weights.sum()
        shift = np.zeros(len(draws))
        growth = shares.sum(axis=1)
        for _ in range(50):
            present = shares * np.exp(shift) / growth[:, None]
            step = _newton_step(present, weights, draws)
            shift = shift - step
            growth = shares @ np.exp(shift)
            if np.abs(step).max() < 1e-6:
                break
        logs = np.full(len(counts), -np.inf)
        logs[filled] = np.log(weights) - self.log_mixture[filled] - np.log(growth)
        return logs


def log_mixture(outputs: Array, betas: Array, draws: Array, free_energies: Array) -> Array:
    """ln sum_k N_k e^(f_k - beta_k z): minus the log weight of a sample with output z."""
    return np.asarray(logsumexp(np.log(draws) + free_energies - outputs[:, None] * betas, axis=1))


def _objective(exponents: Array, weights: Array, draws: Array, f: Array) -> float:
    return float(weights @ _row_logsumexp(exponents + f) - draws @ f)


def _newton_step(shares: Array, weights: Array, draws: Array) -> Array:
    """Hessian^-1 gradient, with f_0 held at zero (only differences of f matter).

    shares (F, K) are the parts of the replicas in the mixture of each bin. Replicas that hardly overlap, as
    all do far from the solution, leave directions without curvature, along which Newton's step would be
    endless: no direction goes farther than LONGEST_STEP per replica.
    """
    weighted = shares * weights[:, None]
    gradient = weighted.sum(axis=0) - draws
    hessian = np.diag(weighted.sum(axis=0)) - shares.T @ weighted
    step = np.zeros(len(draws))
    if len(draws) > 1:
        curvatures, directions = np.linalg.eigh(hessian[1:, 1:])
        least = 1e-14 * np.trace(hessian) + 1e-300
        along = directions.T @ gradient[1:] / np.maximum(curvatures, least)
        most = LONGEST_STEP * np.sqrt(len(draws))
        step[1:] = directions @ np.clip(along, -most, most)
    return step


def _row_logsumexp(values: Array) -> Array:
    """scipy's is three times slower on these small arrays, and this is the inner loop of the bootstrap."""
    top = values.max(axis=1)
    return np.asarray(top + np.log(np.exp(values - top[:, None]).sum(axis=1)))


def _integrated(z: Array, weights: Array, betas: Array) -> Array:
    """A start for f from thermodynamic integration, df = <z> dbeta, on a first guess of the density."""
    order = np.argsort(betas)
    sorted_z, cumulative = np.sort(z), np.cumsum(weights[np.argsort(z)])
    # Colder replicas hold the lower outputs: cut the pooled samples into equal shares by output.
    shares = (np.arange(len(betas), 0, -1) - 0.5) / len(betas) * cumulative[-1]
    means = sorted_z[np.searchsorted(cumulative, shares).clip(max=len(z) - 1)]
    steps = (means[1:] + means[:-1]) / 2 * np.diff(betas[order])
    f = np.empty(len(betas))
    f[order] = np.concatenate([[0.0], np.cumsum(steps)])
    return np.asarray(f - f[0], dtype=np.float64)


def summed_by(index: NDArray[np.int64], log_values: Array, size: int) -> Array:
    """ln sum e^x of the entries of each index 0..size-1; others are left out, empty ones are -inf."""
    inside = (index >= 0) & (index < size) & np.isfinite(log_values)
    index, log_values = index[inside], log_values[inside]
    top = np.full(size, -np.inf)
    np.maximum.at(top, index, log_values)
    total = np.bincount(index, weights=np.exp(log_values - top[index]), minlength=size)
    with np.errstate(divide="ignore"):
        return np.asarray(np.where(total > 0, top + np.log(total), -np.inf), dtype=np.float64)
