"""Block move: a run of neighbouring sites is redrawn uniformly."""

from dataclasses import dataclass

import torch

from assay.omniinput.sampling.kernels.chain import Info, State, Target, metropolis_hastings
from assay.omniinput.sampling.problem import Problem


@dataclass(frozen=True)
class Block:
    """The length is uniform from 1 to `longest`, the place uniform; one evaluation per row; symmetric."""

    longest: int = 4
    gradients: bool = False

    def step(
        self, state: State, target: Target, problem: Problem, generator: torch.Generator, groups: int = 1
    ) -> tuple[State, Info]:
        rows, sites = state.sites.shape
        length = torch.randint(1, min(self.longest, sites) + 1, (rows, 1), generator=generator)
        place = torch.rand(rows, 1, dtype=torch.float64, generator=generator)
        start = (place * (sites - length + 1)).long()
        place_of = torch.arange(sites)
        inside = (place_of >= start) & (place_of < start + length)
        fresh = torch.randint(problem.space.choices, (rows, sites), generator=generator)
        proposed = torch.where(inside, fresh, state.sites)
        return metropolis_hastings(state, proposed, problem(proposed), 0.0, target, generator)
