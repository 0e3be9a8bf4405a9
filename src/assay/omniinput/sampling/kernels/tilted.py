"""Tilted redraw: many sites at once, each from what the target would be if the output were linear.

To first order the output is a sum of terms of one site each, and the target a product of tilted
distributions that can be drawn from directly. Where the output is linear every such proposal is accepted;
elsewhere the Metropolis-Hastings choice corrects for the curvature. The locally balanced moves (`informed`,
`langevin`) use half of the gradient, which is right for small steps; a redraw is a large one and uses all of
it (Zanella 2020 calls the two locally and globally balanced). The paper has no such move.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.omniinput.sampling.kernels.chain import Info, State, Target, metropolis_hastings
from assay.omniinput.sampling.problem import Problem

LEAST_TILT = 1e-9  # below it, a tilted distribution is uniform to machine precision


@dataclass(frozen=True)
class Tilted:
    """Every row redraws a random part of its sites, from one to all of them, more often a large part.

    How large a part works depends on the curvature of the network and on the rung, so all sizes are tried.
    One evaluation with gradient per row; for ordered values (pixels) the memory is rows x sites.
    """

    gradients: bool = True

    def step(
        self, state: State, target: Target, problem: Problem, generator: torch.Generator, groups: int = 1
    ) -> tuple[State, Info]:
        (rows, sites), values = state.sites.shape, problem.space.choices
        part = float(sites) ** -(torch.rand(rows, 1, generator=generator) ** 4)
        inside = torch.rand(rows, sites, generator=generator) < part
        choice = _ordered if state.extras["slopes"].shape[2] == 1 else _unordered
        draw, log_share = choice(state, target, inside, values)
        proposed = draw(generator)
        evaluation = problem(proposed)
        there = State(proposed, evaluation.outputs, evaluation.extras)
        _, log_share_back = choice(there, target, inside, values)
        log_hastings = log_share_back(state.sites) - log_share(proposed)
        return metropolis_hastings(state, proposed, evaluation, log_hastings, target, generator)


Draw = Callable[[torch.Generator], Tensor]
LogShare = Callable[[Tensor], Tensor]


def _ordered(state: State, target: Target, inside: Tensor, values: int) -> tuple[Draw, LogShare]:
    """How to draw from p(v) proportional to exp(tilt v) at the sites inside, and its log probability.

    For all sites at once, in single precision: finding those inside costs more than it saves, and the network
    is no more precise than that.
    """
    slopes = state.extras["slopes"][:, :, 0]
    tilts = target.slope(state.outputs)[:, None].to(slopes.dtype) * slopes
    fall = tilts.abs().clamp_(min=LEAST_TILT)
    reach = torch.expm1(-fall * values)
    up = tilts > 0

    def draw(generator: torch.Generator) -> Tensor:
        uniform = torch.rand(tilts.shape, dtype=tilts.dtype, generator=generator)
        # Steps from the likeliest end are geometric, cut off at the other: invert their distribution.
        steps = torch.log1p(uniform.mul_(reach)).div_(-fall).long().clamp_(max=values - 1)
        return torch.where(inside, torch.where(up, values - 1 - steps, steps), state.sites)

    def log_share(drawn: Tensor) -> Tensor:
        away = torch.where(up, values - 1 - drawn, drawn)
        each = fall * away + torch.log(reach / torch.expm1(-fall))
        return -torch.where(inside, each, 0.0).sum(dim=1, dtype=torch.float64)

    return draw, log_share


def _unordered(state: State, target: Target, inside: Tensor, values: int) -> tuple[Draw, LogShare]:
    """The same if each value has its own tilt: (n, values) of the n sites inside."""
    row, site = inside.nonzero(as_tuple=True)
    tilts = target.slope(state.outputs)[row, None] * state.extras["slopes"][row, site].double()

    def draw(generator: torch.Generator) -> Tensor:
        if not len(row):
            return state.sites
        drawn = torch.multinomial(torch.softmax(tilts, dim=1), 1, generator=generator)[:, 0]
        return state.sites.index_put((row, site), drawn)

    def log_share(drawn: Tensor) -> Tensor:
        each = torch.log_softmax(tilts, dim=1).gather(1, drawn[row, site][:, None])[:, 0]
        return torch.zeros(len(drawn), dtype=torch.float64).index_add(0, row, each)

    return draw, log_share
