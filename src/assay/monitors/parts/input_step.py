"""Scores of inputs that were first moved a small step, as ODIN and Lee et al. do."""

from collections.abc import Callable

import torch
from torch import Tensor

from assay.monitors.metadata import Needs
from assay.network import Network, length, perturbable, replaced, rows
from assay.trace import Inputs, Trace

INPUT_STEP = Needs(inputs=True, forward="2", backward="1")
"""What monitors need that move inputs before they score them."""

Measure = Callable[[Trace], Tensor]
"""One number per row of a Trace."""


def perturbed_scores(
    network: Network, trace: Trace, objective: Measure, step: float, score: Measure
) -> Tensor:
    """`score` of the Trace of inputs + step * sign(d objective / d inputs).

    Costs a forward and a backward pass and one more forward pass, batch by batch. Rows with inputs that are
    not finite have no gradient and score NaN.
    """
    inputs = trace.known_inputs
    scores = torch.full((len(trace),), torch.nan, dtype=torch.float64)
    for batch in torch.split(_finite_rows(inputs).nonzero().squeeze(1), network.batch_size):
        part = network.embed(rows(inputs, batch))
        moved = torch.add(perturbable(part), network.gradient(part, objective).sign_(), alpha=step)
        scores[batch] = score(network.observe(replaced(part, moved), allow_nonfinite=True)).double()
    return scores


def _finite_rows(inputs: Inputs) -> Tensor:
    tensors = [inputs] if isinstance(inputs, Tensor) else list(inputs.values())
    usable = torch.ones(length(inputs), dtype=torch.bool)
    for tensor in tensors:
        if tensor.is_floating_point():
            usable &= torch.isfinite(tensor).flatten(1).all(dim=1).cpu()
    return usable
