"""Shared by all samplers: diagnostics, checks and kept inputs of an OutputDistribution."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from assay.omniinput.sampling.checkpoint import Run
from assay.omniinput.sampling.convergence import Reason, gap_reasons
from assay.omniinput.sampling.density_estimate import DensityEstimate
from assay.omniinput.sampling.distribution import OutputDistribution, Samples
from assay.omniinput.sampling.representatives import Representatives
from assay.omniinput.sampling.space import InputSpace

Array = NDArray[np.float64]


def effective_samples(found: DensityEstimate) -> Array:
    """The number of independent samples with the same error, 1 / error^2; zero without an error."""
    with np.errstate(divide="ignore"):
        return np.where(np.isfinite(found.error), 1 / np.maximum(found.error, 1e-6) ** 2, 0.0)


def common_diagnostics(
    run: Run, sampler: str, found: DensityEstimate, effective: Array, apart: float
) -> dict[str, Any]:
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


def assembled(
    edges: Array,
    found: DensityEstimate,
    space: InputSpace,
    kept: Samples,
    diagnostics: dict[str, Any],
    reasons: list[Reason],
) -> OutputDistribution:
    reasons = [*gap_reasons(found.log_density), *reasons]
    return OutputDistribution(
        edges, found.log_density, found.error, space, kept, found.resamples, diagnostics, tuple(reasons)
    )


def kept_inputs(
    representatives: Representatives, space: InputSpace, log_weight: Callable[[Array], Array]
) -> Samples:
    """Kept inputs with their weights: that of the sampling times that of the output."""
    if not len(representatives.index):
        return Samples.none(space)
    inputs: Tensor = space.embed(representatives.sites)
    weights = representatives.standing_weights() + log_weight(representatives.outputs)
    return Samples(
        inputs, representatives.outputs, representatives.index, weights, blocks=representatives.blocks()
    )
