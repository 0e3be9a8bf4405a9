"""Crossover: two replicas of one ensemble exchange a stretch of sites (Liang and Wong 2000, real crossover).

The move is Metropolis on the joint distribution of the pair, so each keeps its own target. A black box needs
nothing more, and where the output is made of local terms only the two ends of the stretch cost anything.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.omniinput.kernels.chain import Info, State, Target, chosen
from assay.omniinput.problem import Problem


@dataclass(frozen=True)
class Crossover:
    """Neighbouring rows of an ensemble pair up, even or odd at random; one evaluation per paired row.

    Half of the stretches reach to the end of the input, so that only one seam is new.
    """

    gradients: bool = False

    def step(
        self, state: State, target: Target, problem: Problem, generator: torch.Generator, groups: int = 1
    ) -> tuple[State, Info]:
        rows, sites = state.sites.shape
        probability = torch.zeros(rows, dtype=torch.float64)
        left = _left_partners(rows, groups, int(torch.randint(2, (), generator=generator)))
        if not len(left):
            return state, Info(torch.zeros(rows, dtype=torch.bool), probability)
        inside = _stretches(len(left), sites, generator)
        one, other = state.sites[left], state.sites[left + 1]
        proposed = torch.cat([torch.where(inside, other, one), torch.where(inside, one, other)])
        paired = torch.cat([left, left + 1])
        evaluation = problem(proposed)
        outputs = state.outputs.index_copy(0, paired, evaluation.outputs)
        gain = (target.log_weight(outputs) - target.log_weight(state.outputs))[paired]
        probable = gain.reshape(2, -1).sum(dim=0).clamp(max=0.0).exp()
        accepted = torch.rand(len(left), dtype=torch.float64, generator=generator) < probable
        after = chosen(accepted.repeat(2), proposed, evaluation, state.rows(paired))
        probability[paired] = probable.repeat(2)
        moved = torch.zeros(rows, dtype=torch.bool).index_copy(0, paired, accepted.repeat(2))
        return _with_rows(state, paired, after), Info(moved, probability)


def _stretches(count: int, sites: int, generator: torch.Generator) -> Tensor:
    """Which sites of each pair are exchanged, (count, sites)."""
    ends = torch.randint(sites + 1, (2, count, 1), generator=generator)
    place = torch.arange(sites)
    to_the_end = torch.rand(count, 1, generator=generator) < 0.5
    last = torch.maximum(ends[0], ends[1]).masked_fill(to_the_end, sites)
    return (place >= torch.minimum(ends[0], ends[1])) & (place < last)


def _left_partners(rows: int, groups: int, parity: int) -> Tensor:
    """The first row of each pair (k, k + 1) inside its group."""
    size = rows // groups
    within = torch.arange(parity, size - 1, 2)
    return (torch.arange(groups)[:, None] * size + within).flatten()


def _with_rows(state: State, index: Tensor, new: State) -> State:
    extras = {name: value.index_copy(0, index, new.extras[name]) for name, value in state.extras.items()}
    return State(
        state.sites.index_copy(0, index, new.sites), state.outputs.index_copy(0, index, new.outputs), extras
    )
