"""Single-site Metropolis: the paper's baseline. One site takes another value, drawn uniformly."""

from dataclasses import dataclass

import torch

from assay.omniinput.sampling.kernels.chain import Info, State, Target, metropolis_hastings
from assay.omniinput.sampling.problem import Problem


@dataclass(frozen=True)
class SingleSite:
    """One model evaluation per row; the proposal is symmetric and never the present value."""

    gradients: bool = False

    def step(
        self, state: State, target: Target, problem: Problem, generator: torch.Generator, groups: int = 1
    ) -> tuple[State, Info]:
        rows, sites = state.sites.shape
        values = problem.space.choices
        site = torch.randint(sites, (rows, 1), generator=generator)
        change = torch.randint(1, values, (rows, 1), generator=generator)
        proposed = state.sites.scatter(1, site, (state.sites.gather(1, site) + change) % values)
        return metropolis_hastings(state, proposed, problem(proposed), 0.0, target, generator)
