"""What all kernels share: the state of a batch of chains, their target, the Metropolis-Hastings choice."""

from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from assay.omniinput.problem import Evaluation, Problem


@dataclass
class State:
    """Site values (R, sites), outputs (R,) and extras of R chains; the output is stored, never recomputed."""

    sites: Tensor
    outputs: Tensor
    extras: dict[str, Tensor] = field(default_factory=dict)

    def rows(self, index: Tensor) -> "State":
        extras = {name: value[index] for name, value in self.extras.items()}
        return State(self.sites[index], self.outputs[index], extras)


@dataclass
class Info:
    """What a step did: which rows moved, and the probability with which each would have."""

    accepted: Tensor
    probability: Tensor


class Target(Protocol):
    """The distribution each row aims at, as a function of the output alone."""

    def log_weight(self, outputs: Tensor) -> Tensor:
        """Unnormalised log probability of inputs with these outputs, row by row."""

    def slope(self, outputs: Tensor) -> Tensor:
        """Its derivative with respect to the output."""


@dataclass(frozen=True)
class Tempered:
    """exp(-beta z) (paper Eq. 2 with g = -z and beta = 1/T), one beta per row."""

    betas: Tensor

    def log_weight(self, outputs: Tensor) -> Tensor:
        return -self.betas * outputs

    def slope(self, outputs: Tensor) -> Tensor:
        return -self.betas


class Kernel(Protocol):
    """One way to move; `gradients` says whether extras["slopes"] must be there.

    `groups` says into how many independent ensembles the rows are divided, in order.
    """

    @property
    def gradients(self) -> bool: ...

    def step(
        self, state: State, target: Target, problem: Problem, generator: torch.Generator, groups: int = 1
    ) -> tuple[State, Info]: ...


def init(sites: Tensor, problem: Problem) -> State:
    """The state of chains that start at these site values."""
    evaluation = problem(sites)
    return State(sites, evaluation.outputs, evaluation.extras)


def metropolis_hastings(
    state: State,
    proposed: Tensor,
    evaluation: Evaluation,
    log_hastings: Tensor | float,
    target: Target,
    generator: torch.Generator,
) -> tuple[State, Info]:
    """Accept each row with min(1, exp(log target ratio + log_hastings))."""
    log_ratio = target.log_weight(evaluation.outputs) - target.log_weight(state.outputs) + log_hastings
    probability = log_ratio.clamp(max=0.0).exp()
    accepted = torch.rand(len(probability), dtype=torch.float64, generator=generator) < probability
    return chosen(accepted, proposed, evaluation, state), Info(accepted, probability)


def chosen(accepted: Tensor, proposed: Tensor, evaluation: Evaluation, state: State) -> State:
    """The proposal where accepted, the present state elsewhere."""

    def pick(new: Tensor, old: Tensor) -> Tensor:
        return torch.where(accepted.reshape(-1, *[1] * (new.ndim - 1)), new, old)

    extras = {name: pick(value, state.extras[name]) for name, value in evaluation.extras.items()}
    return State(pick(proposed, state.sites), pick(evaluation.outputs, state.outputs), extras)
