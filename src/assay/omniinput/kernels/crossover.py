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
        left = _left_partners(rows, groups, int(torch.randint(2, (), generator=generator)))
        if not len(left):
            return state, Info(torch.zeros(rows, dtype=torch.bool), torch.zeros(rows, dtype=torch.float64))
        partner = torch.arange(rows)
        partner[left], partner[left + 1] = left + 1, left.clone()
        ends = torch.randint(sites + 1, (2, len(left), 1), generator=generator).sort(dim=0).values
        ends[1, torch.rand(len(left), generator=generator) < 0.5] = sites
        place = torch.arange(sites)
        inside = torch.zeros(rows, sites, dtype=torch.bool)
        inside[left] = inside[left + 1] = (place >= ends[0]) & (place < ends[1])
        proposed = torch.where(inside, state.sites[partner], state.sites)
        paired = torch.cat([left, left + 1])
        evaluation = problem(proposed[paired])
        before = state.rows(paired)
        outputs = state.outputs.index_put((paired,), evaluation.outputs)
        gain = target.log_weight(outputs) - target.log_weight(state.outputs)
        pair_probability = (gain[left] + gain[left + 1]).clamp(max=0.0).exp()
        uniform = torch.rand(len(left), dtype=torch.float64, generator=generator)
        accepted = (uniform < pair_probability).repeat(2)
        after = chosen(accepted, proposed[paired], evaluation, before)
        probability = torch.zeros(rows, dtype=torch.float64).index_put((paired,), pair_probability.repeat(2))
        moved = torch.zeros(rows, dtype=torch.bool).index_put((paired,), accepted)
        return _with_rows(state, paired, after), Info(moved, probability)


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
