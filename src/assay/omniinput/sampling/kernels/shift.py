"""Shift move for sequences: one value is removed, those after it close up, a new one is inserted
elsewhere."""

from dataclasses import dataclass

import torch

from assay.omniinput.sampling.kernels.chain import Info, State, Target, metropolis_hastings
from assay.omniinput.sampling.problem import Problem


@dataclass(frozen=True)
class Shift:
    """Site i is removed and a uniformly drawn value is inserted at site j.

    The way back removes site j and inserts the old value at site i, so the proposal is symmetric. If the
    output depends on neighbours (text), only the ends of the shifted stretch change. One evaluation per row.
    """

    gradients: bool = False

    def step(
        self, state: State, target: Target, problem: Problem, generator: torch.Generator, groups: int = 1
    ) -> tuple[State, Info]:
        rows, sites = state.sites.shape
        out, into = torch.randint(sites, (2, rows, 1), generator=generator)
        fresh = torch.randint(problem.space.choices, (rows, 1), generator=generator)
        place = torch.arange(sites)
        forward = (place >= out) & (place < into)
        backward = (place <= out) & (place > into)
        source = place + forward.long() - backward.long()
        proposed = state.sites.gather(1, source).scatter(1, into, fresh)
        return metropolis_hastings(state, proposed, problem(proposed), 0.0, target, generator)
