"""Discrete Langevin proposal, Metropolis corrected (Zhang, Liu and Liu 2022, DMALA): many sites at once."""

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.omniinput.sampling.kernels.chain import Info, State, Target, metropolis_hastings
from assay.omniinput.sampling.kernels.informed import estimated_changes
from assay.omniinput.sampling.problem import Problem


@dataclass(frozen=True)
class Langevin:
    """Each site independently takes v with probability proportional to exp(gain(v) / 2 - distance(v) / step).

    The distance is (v - x)^2 / 2 in units of the value range for ordered values (pixels), and 1 for any other
    value of unordered ones (tokens, when gradients come from one-hot inputs). Only `most_sites` sites,
    redrawn at each step and the same for all rows, may change: moving all of a large image at once is never
    accepted, and the memory is rows x most_sites x values. One evaluation with gradient per row.
    """

    step_size: float = 0.5
    most_sites: int = 64
    gradients: bool = True

    def step(
        self, state: State, target: Target, problem: Problem, generator: torch.Generator, groups: int = 1
    ) -> tuple[State, Info]:
        rows, sites = state.sites.shape
        values = problem.space.choices
        subset = torch.randperm(sites, generator=generator)[: self.most_sites]
        forward = self._log_choice(_at(state, subset), target, values)
        drawn = torch.multinomial(forward.exp().reshape(-1, values), 1, generator=generator)
        changed = drawn.reshape(rows, len(subset))
        proposed = state.sites.index_copy(1, subset, changed)
        evaluation = problem(proposed)
        there = _at(State(proposed, evaluation.outputs, evaluation.extras), subset)
        backward = self._log_choice(there, target, values)
        log_hastings = _log_probability(backward, state.sites[:, subset]) - _log_probability(forward, changed)
        return metropolis_hastings(state, proposed, evaluation, log_hastings, target, generator)

    def _log_choice(self, state: State, target: Target, values: int) -> Tensor:
        half_slope = target.slope(state.outputs)[:, None, None].float() / 2
        gain = half_slope * estimated_changes(state, values)
        away = torch.arange(values) - state.sites[:, :, None]
        ordered = state.extras["slopes"].shape[2] == 1
        distance = (away / values) ** 2 / 2 if ordered else (away != 0).float()
        return torch.log_softmax(gain - distance / self.step_size, dim=2)


def _at(state: State, subset: Tensor) -> State:
    """The state as seen at some sites only."""
    return State(state.sites[:, subset], state.outputs, {"slopes": state.extras["slopes"][:, subset]})


def _log_probability(log_choice: Tensor, sites: Tensor) -> Tensor:
    return log_choice.gather(2, sites[:, :, None])[:, :, 0].double().sum(dim=1)
