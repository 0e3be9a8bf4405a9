"""Discrete Langevin proposal, Metropolis corrected (Zhang, Liu and Liu 2022, DMALA): all sites at once."""

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.omniinput.kernels.chain import Info, State, Target, metropolis_hastings
from assay.omniinput.kernels.informed import estimated_changes
from assay.omniinput.problem import Problem


@dataclass(frozen=True)
class Langevin:
    """Each site independently takes v with probability proportional to exp(gain(v) / 2 - distance(v) / step).

    The distance is (v - x)^2 / 2 in units of the value range for ordered values (pixels), and 1 for any other
    value of unordered ones (tokens, when gradients come from one-hot inputs). One evaluation with gradient a
    row; the memory is rows x sites x values.
    """

    step_size: float = 0.1
    gradients: bool = True

    def step(
        self, state: State, target: Target, problem: Problem, generator: torch.Generator, groups: int = 1
    ) -> tuple[State, Info]:
        values = problem.space.values
        forward = self._log_choice(state, target, values)
        rows, sites = state.sites.shape
        drawn = torch.multinomial(forward.exp().reshape(rows * sites, values), 1, generator=generator)
        proposed = drawn.reshape(rows, sites)
        evaluation = problem(proposed)
        backward = self._log_choice(State(proposed, evaluation.outputs, evaluation.extras), target, values)
        log_hastings = _log_probability(backward, state.sites) - _log_probability(forward, proposed)
        return metropolis_hastings(state, proposed, evaluation, log_hastings, target, generator)

    def _log_choice(self, state: State, target: Target, values: int) -> Tensor:
        gain = target.slope(state.outputs)[:, None, None] * estimated_changes(state, values).double() / 2
        away = torch.arange(values) - state.sites[:, :, None]
        ordered = state.extras["slopes"].shape[2] == 1
        distance = (away / values) ** 2 / 2 if ordered else (away != 0).double()
        return torch.log_softmax(gain - distance / self.step_size, dim=2)


def _log_probability(log_choice: Tensor, sites: Tensor) -> Tensor:
    return log_choice.gather(2, sites[:, :, None])[:, :, 0].sum(dim=1)
