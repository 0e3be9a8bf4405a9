"""From a run to its OutputDistribution: the estimate, the checks it passed or failed, the inputs it kept."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.omniinput.sampling import convergence
from assay.omniinput.sampling.density_estimate import Estimate
from assay.omniinput.sampling.distribution import OutputDistribution, Samples
from assay.omniinput.sampling.ladder_record import Record
from assay.omniinput.sampling.representatives import Reservoir
from assay.omniinput.sampling.reweighting import log_mixture
from assay.omniinput.sampling.samplers.importance import Importance
from assay.omniinput.sampling.samplers.multicanonical import Multicanonical
from assay.omniinput.sampling.samplers.tempering import Tempering
from assay.omniinput.sampling.space import InputSpace

Array = NDArray[np.float64]


def tempering_distribution(run: Tempering) -> OutputDistribution:
    """Reweighted over the ladder; checked for swaps, round trips, agreement, gaps and effective samples."""
    assert run.record is not None
    assert run.trips is not None
    assert run.turns is not None
    found = run.estimate()
    betas, draws = run.betas, np.full(len(run.betas), found.steps)
    kept = _samples(
        run.record.reservoir,
        run.problem.space,
        lambda outputs: -log_mixture(outputs, betas, draws, found.solution),
    )
    acceptance = 1 - run.rejections / max(run.moves, 1)
    effective = _effective(found)
    apart, reasons = convergence.agreement(found.by_ensemble, found.error / found.inflation)
    reasons += convergence.ladder_reasons(acceptance, run.trips.total)
    reasons += convergence.effective_reasons(effective, found.log_density, convergence.LEAST_EFFECTIVE)
    diagnostics = _common(run, "tempering", found, effective, apart) | {
        "betas": betas,
        "kernel_shares": run.turns.shares,
        "swap_acceptance": acceptance,
        "round_trips": run.trips.total,
        "acceptance": run.accepted.reshape(run.plan.ensembles, -1).mean(axis=0) / max(run.moves, 1),
        "overlap": _least_overlap(run.record, betas, found),
        "fine_width_times_beta": _fine_width(run.record) * float(np.abs(betas).max()),
    }
    return _distribution(run.record.edges, found, run.problem.space, kept, diagnostics, reasons)


def multicanonical_distribution(run: Multicanonical) -> OutputDistribution:
    """From the flat walk, or from the tempering that precedes it as long as there is no more."""
    if run.record is None or run.target is None or not len(run.record.blocks):
        return tempering_distribution(run.pilot)
    assert run.trips is not None
    found = run.estimate()
    target = run.target
    kept = _samples(
        run.record.reservoir,
        run.problem.space,
        lambda outputs: -target.log_weight(torch.from_numpy(outputs)).numpy(),
    )
    effective = _effective(found)
    apart, reasons = convergence.agreement(found.by_ensemble, found.error / found.inflation)
    reasons += convergence.trip_reasons(run.trips.total)
    reasons += convergence.effective_reasons(effective, found.log_density, convergence.LEAST_EFFECTIVE)
    diagnostics = _common(run, "multicanonical", found, effective, apart) | {
        "round_trips": run.trips.total,
        "knots": target.knots.numpy(),
        "log_g": target.log_g.numpy(),
    }
    return _distribution(run.record.edges, found, run.problem.space, kept, diagnostics, reasons)


def importance_distribution(run: Importance) -> OutputDistribution:
    """Absolutely normalised; checked for effective samples, agreement of halves, gaps and the known sums."""
    assert run.edges is not None
    assert run.reservoir is not None
    found = run.estimate()
    kept = _samples(run.reservoir, run.problem.space, np.zeros_like)
    effective = run.effective()
    apart, reasons = convergence.agreement(found.by_ensemble, found.error / found.inflation)
    reasons += convergence.effective_reasons(
        effective, found.log_density, convergence.LEAST_IMPORTANCE_EFFECTIVE
    )
    inputs, likelihood = run.anchors()
    finite = found.error[np.isfinite(found.error)]
    reasons += convergence.anchor_reasons(
        inputs, likelihood, float(np.median(finite)) if len(finite) else 1.0
    )
    diagnostics = _common(run, "importance", found, effective, apart) | {
        "proposal_betas": run.proposals,
        "log_inputs_error": inputs,
        "log_likelihood_error": likelihood,
    }
    return _distribution(run.edges, found, run.problem.space, kept, diagnostics, reasons)


def combined(importance: OutputDistribution, tempering: OutputDistribution) -> OutputDistribution:
    """Two independent estimates of the same density, each bin weighted by its precision.

    Bins that either sampler passed need no more from the other; both must agree where both are known.
    """
    one, two = _precision(importance), _precision(tempering)
    # With few effective samples importance sampling underestimates its own error, so it counts for less.
    trust = importance.diagnostics["effective_sample_size"] / convergence.LEAST_IMPORTANCE_EFFECTIVE
    weak = trust < 1.0
    one = one * np.minimum(trust, 1.0) ** 2
    total = one + two
    share = np.divide(one, total, out=np.zeros_like(total), where=total > 0)
    log_density = _mixed(share, importance.log_density, tempering.log_density)
    error = np.where(
        total > 0, 1 / np.sqrt(np.maximum(total, 1e-300)), np.where(np.isnan(log_density), np.nan, np.inf)
    )
    count = min(len(importance.replicates), len(tempering.replicates))
    replicates = _mixed(share, importance.replicates[:count], tempering.replicates[:count])
    both = np.stack([importance.log_density, tempering.log_density])
    between = np.sqrt(importance.error**2 + tempering.error**2) / 2
    between[weak] = np.nan
    apart, reasons = convergence.agreement(both, between)
    effective = np.where(share >= 0.5, importance.diagnostics["effective_sample_size"], 1 / error**2)
    reasons = [reason for reason in reasons if "disagree" in reason]
    reasons += convergence.effective_reasons(effective, log_density, convergence.LEAST_EFFECTIVE)
    reasons += [reason for reason in tempering.reasons if "swap" in reason or "round trips" in reason]
    diagnostics = {f"importance_{name}": value for name, value in importance.diagnostics.items()}
    diagnostics |= dict(tempering.diagnostics)
    diagnostics |= {
        "sampler": "importance, then tempering",
        "effective_sample_size": effective,
        "samplers_apart": apart,
        "importance_share": share,
    }
    kept = _joined(importance.kept, tempering.kept, share >= 0.5)
    reasons += convergence.gap_reasons(log_density)
    return OutputDistribution(
        importance.edges, log_density, error, importance.space, kept, replicates, diagnostics, tuple(reasons)
    )


def _precision(dist: OutputDistribution) -> Array:
    usable = np.isfinite(dist.error) & ~np.isnan(dist.log_density)
    return np.where(usable, 1 / np.maximum(dist.error, 1e-6) ** 2, 0.0)


def _mixed(share: Array, one: Array, two: Array) -> Array:
    """share of the first and the rest of the second; whichever is known where only one is."""
    first = np.where(np.isfinite(one), share, 0.0)
    first = np.where(np.isfinite(two), first, 1.0)
    with np.errstate(invalid="ignore"):
        return np.where(first == 1, one, np.where(first == 0, two, first * one + (1 - first) * two))


def _joined(one: Samples, two: Samples, first: NDArray[np.bool_]) -> Samples:
    """The inputs of the first in the bins marked, of the second elsewhere."""
    mine, theirs = np.flatnonzero(first[one.bins]), np.flatnonzero(~first[two.bins])
    return Samples(
        torch.cat([one.inputs[mine.copy()], two.inputs[theirs.copy()]]),
        np.concatenate([one.outputs[mine], two.outputs[theirs]]),
        np.concatenate([one.bins[mine], two.bins[theirs]]),
        np.concatenate([one.log_weights[mine], two.log_weights[theirs]]),
    )


def _effective(found: Estimate) -> Array:
    """Independent samples that would give the same error, 1 / error^2; zero where there is none."""
    with np.errstate(divide="ignore"):
        return np.where(np.isfinite(found.error), 1 / np.maximum(found.error, 1e-6) ** 2, 0.0)


def _common(run: Any, sampler: str, found: Estimate, effective: Array, apart: float) -> dict[str, Any]:
    elapsed = run.budget.elapsed
    return {
        "sampler": sampler,
        "evaluations": run.problem.evaluations,
        "seconds": elapsed,
        "model_seconds": run.problem.seconds,
        "share_outside_model": max(0.0, 1 - run.problem.seconds / elapsed) if elapsed else 0.0,
        "effective_sample_size": effective,
        "ensembles_log_density": found.by_ensemble,
        "ensembles_apart": apart,
        "block_correlation": found.correlation,
        "error_inflation": found.inflation,
        "time_blocks": found.blocks,
        "burn_in_blocks": found.dropped,
    }


def _distribution(
    edges: Array,
    found: Estimate,
    space: InputSpace,
    kept: Samples,
    diagnostics: dict[str, Any],
    reasons: list[str],
) -> OutputDistribution:
    reasons = [*convergence.gap_reasons(found.log_density), *reasons]
    return OutputDistribution(
        edges, found.log_density, found.error, space, kept, found.replicates, diagnostics, tuple(reasons)
    )


def _samples(reservoir: Reservoir, space: InputSpace, log_weight: Callable[[Array], Array]) -> Samples:
    """Kept inputs with the weight each stands for: what its reservoir says times what its output says."""
    if not len(reservoir.index):
        return Samples.none(space)
    inputs: Tensor = space.embed(reservoir.sites)
    weights = reservoir.standing_weights() + log_weight(reservoir.outputs)
    return Samples(inputs, reservoir.outputs, reservoir.index, weights)


def _fine_width(record: Record) -> float:
    return float(np.diff(record.fine).max())


def _least_overlap(record: Record, betas: Array, found: Estimate) -> float:
    """The smallest entry O(k, k+1) of the overlap matrix of neighbouring rungs (Klimovich et al. 2015)."""
    blocks = record.blocks.whole()
    counts = blocks["counts"][found.dropped :].sum(axis=(0, 1))
    sums = blocks["sums"][found.dropped :].sum(axis=(0, 1))
    seen = counts > 0
    outputs = sums[seen] / counts[seen]
    draws = np.full(len(betas), found.steps)
    weights = np.exp(
        found.solution
        - outputs[:, None] * betas
        - log_mixture(outputs, betas, draws, found.solution)[:, None]
    )
    matrix = found.steps * (weights * counts[seen][:, None]).T @ weights
    return float(np.diag(matrix, 1).min()) if len(betas) > 1 else 1.0
