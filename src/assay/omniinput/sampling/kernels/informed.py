"""Gibbs with gradients (Grathwohl et al. 2021): one site changes, likely where the gradient gains most."""

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.omniinput.sampling.kernels.chain import Info, State, Target, metropolis_hastings
from assay.omniinput.sampling.problem import Problem


@dataclass(frozen=True)
class Informed:
    """Locally informed proposal: q(site, value) is proportional to exp(estimated gain in log target / 2).

    One evaluation with gradient per row; the memory is rows x sites x values.
    """

    gradients: bool = True

    def step(
        self, state: State, target: Target, problem: Problem, generator: torch.Generator, groups: int = 1
    ) -> tuple[State, Info]:
        values = problem.space.choices
        forward = _log_choice(state, target, values)
        choice = torch.multinomial(forward.exp(), 1, generator=generator)
        site, value = choice // values, choice % values
        proposed = state.sites.scatter(1, site, value)
        evaluation = problem(proposed)
        backward = _log_choice(State(proposed, evaluation.outputs, evaluation.extras), target, values)
        back = site * values + state.sites.gather(1, site)
        log_hastings = (backward.gather(1, back) - forward.gather(1, choice))[:, 0].double()
        return metropolis_hastings(state, proposed, evaluation, log_hastings, target, generator)


def estimated_changes(state: State, values: int) -> Tensor:
    """First-order change of the output when a site takes a value: (R, sites, values)."""
    slopes = state.extras["slopes"]
    present = state.sites[:, :, None]
    if slopes.shape[2] == 1:
        return slopes * (torch.arange(values) - present)
    return slopes - slopes.gather(2, present)


def _log_choice(state: State, target: Target, values: int) -> Tensor:
    """Log probability of every (site, value), flat; the present values are not proposed."""
    half_slope = target.slope(state.outputs)[:, None, None].float() / 2
    gain = half_slope * estimated_changes(state, values)
    gain = gain.scatter(2, state.sites[:, :, None], -torch.inf)
    return torch.log_softmax(gain.flatten(1), dim=1)
