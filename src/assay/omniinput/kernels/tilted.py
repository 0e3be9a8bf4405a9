"""Tilted redraw: many sites at once, each from what the target would be if the output were linear.

To first order the output is a sum of terms of one site each, and the target a product of tilted
distributions that can be drawn from directly. Where the output is linear every such proposal is accepted;
elsewhere the Metropolis-Hastings choice corrects for the curvature. The locally balanced moves (`informed`,
`langevin`) use half of the gradient, which is right for small steps; a redraw is a large one and uses all of
it (Zanella 2020 calls the two locally and globally balanced). The paper has no such move.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.omniinput.kernels.chain import Info, State, Target, metropolis_hastings
from assay.omniinput.problem import Problem

LEAST_TILT = 1e-9  # below it, a tilted distribution is uniform to machine precision


@dataclass(frozen=True)
class Tilted:
    """Every row redraws a random part of its sites, from one to all of them, more often a large part.

    Networks differ in how curved they are, and rungs too: whatever part is right is tried often enough. One
    evaluation with gradient a row; for ordered values (pixels) the memory is rows x sites.
    """

    gradients: bool = True

    def step(
        self, state: State, target: Target, problem: Problem, generator: torch.Generator, groups: int = 1
    ) -> tuple[State, Info]:
        rows, sites = state.sites.shape
        values = problem.space.values
        part = float(sites) ** -(torch.rand(rows, 1, generator=generator) ** 4)
        row, site = (torch.rand(rows, sites, generator=generator) < part).nonzero(as_tuple=True)
        tilts = _tilts(state, target, row, site)
        drawn = _drawn(tilts, values, generator)
        proposed = state.sites.index_put((row, site), drawn)
        evaluation = problem(proposed)
        back = _tilts(State(proposed, evaluation.outputs, evaluation.extras), target, row, site)
        each = _log_share(back, values, state.sites[row, site]) - _log_share(tilts, values, drawn)
        log_hastings = torch.zeros(rows, dtype=torch.float64).index_add(0, row, each)
        return metropolis_hastings(state, proposed, evaluation, log_hastings, target, generator)


def _tilts(state: State, target: Target, row: Tensor, site: Tensor) -> Tensor:
    """What the log target gains at each site, to first order: per unit of value (n,), or per value (n, V)."""
    slopes = state.extras["slopes"][row, site].double()
    tilts = target.slope(state.outputs)[row, None] * slopes
    return tilts[:, 0] if tilts.shape[1] == 1 else tilts


def _drawn(tilts: Tensor, values: int, generator: torch.Generator) -> Tensor:
    """One value per site from p(v) proportional to exp(tilt v), or exp(tilt of v)."""
    if tilts.ndim == 2:
        return torch.multinomial(torch.softmax(tilts, dim=1), 1, generator=generator)[:, 0]
    fall = tilts.abs().clamp(min=LEAST_TILT)
    uniform = torch.rand(tilts.shape, dtype=torch.float64, generator=generator)
    # Steps from the likeliest end are geometric, cut off at the other: invert their distribution.
    steps = -torch.log1p(uniform * torch.expm1(-fall * values)) / fall
    away = steps.long().clamp(max=values - 1)
    return torch.where(tilts > 0, values - 1 - away, away)


def _log_share(tilts: Tensor, values: int, drawn: Tensor) -> Tensor:
    """The log probability with which `_drawn` gives these values."""
    if tilts.ndim == 2:
        return torch.log_softmax(tilts, dim=1).gather(1, drawn[:, None])[:, 0]
    fall = tilts.abs().clamp(min=LEAST_TILT)
    away = torch.where(tilts > 0, values - 1 - drawn, drawn)
    return -fall * away - torch.log(torch.expm1(-fall * values) / torch.expm1(-fall))
