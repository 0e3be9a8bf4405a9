"""Shared by all kernels: the state of a batch of chains, their target, the Metropolis-Hastings choice."""

from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.omniinput.sampling.problem import Evaluation, Problem


@dataclass
class State:
    """Site values (R, sites), outputs (R,) and extras of R chains; the output is stored, never recomputed."""

    sites: Tensor
    outputs: Tensor
    extras: dict[str, Tensor] = field(default_factory=dict)

    def rows(self, index: NDArray[np.int64]) -> "State":
        extras = {name: _take_rows(value, index) for name, value in self.extras.items()}
        return State(_take_rows(self.sites, index), _take_rows(self.outputs, index), extras)


def _take_rows(values: Tensor, index: NDArray[np.int64]) -> Tensor:
    """Rows by numpy, whose calls cost a fraction of torch's on arrays as small as most states."""
    return torch.from_numpy(values.numpy().take(index, axis=0))


@dataclass
class Info:
    """Diagnostics of a step: the rows that moved, and the acceptance probability of each."""

    accepted: Tensor
    probability: Tensor


class Target(Protocol):
    """The distribution each row aims at, as a function of the output alone."""

    def log_weight(self, outputs: Tensor) -> Tensor:
        """Unnormalised log probability of inputs with these outputs, row by row."""

    def slope(self, outputs: Tensor) -> Tensor:
        """Its derivative with respect to the output."""


class Tempered:
    """exp(-beta z) (paper Eq. 2 with g = -z and beta = 1/T), one beta per row."""

    def __init__(self, betas: Tensor) -> None:
        self.betas, self._slope = betas, -betas

    def log_weight(self, outputs: Tensor) -> Tensor:
        return self._slope * outputs

    def slope(self, outputs: Tensor) -> Tensor:
        return self._slope


class Kernel(Protocol):
    """One kind of move; `gradients` is whether it needs extras["slopes"].

    `groups` is the number of independent ensembles that the rows are divided into, in order. A kernel that
    needs more than one evaluation per row and step has an attribute `evaluations`.
    """

    @property
    def gradients(self) -> bool: ...

    def step(
        self, state: State, target: Target, problem: Problem, generator: torch.Generator, groups: int = 1
    ) -> tuple[State, Info]: ...


@runtime_checkable
class Learner(Protocol):
    """A kernel that learns while the ladder adapts, and is frozen with it."""

    def watch(self, sites: Tensor, outputs: Tensor, rungs: int, values: int) -> None:
        """Called after some steps with states (any number x rungs, sites) of the present ladder."""

    def learn(
        self, nearest: NDArray[np.int64], betas: NDArray[np.float64], values: int, frozen: bool
    ) -> None:
        """Called with a new ladder, the old rung nearest to each new one, and whether it is the last
        ladder."""

    def snapshot(self) -> dict[str, Any]: ...

    def restore(self, snapshot: dict[str, Any]) -> None: ...


def evaluations_per_row(kernel: Kernel) -> int:
    """Model evaluations per row in one step."""
    return int(getattr(kernel, "evaluations", 1))


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
    """Accept each row with min(1, exp(log target ratio + log_hastings)).

    Where inputs come from a base, extras["log_base"] is ln of the probability of every site in it, and the
    target is the product of both.
    """
    gain = target.log_weight(evaluation.outputs) - target.log_weight(state.outputs)
    log_ratio = gain.numpy() + np.asarray(log_hastings)
    if "log_base" in evaluation.extras:
        log_ratio += base_gain(state, evaluation).numpy()
    probability = np.exp(np.minimum(log_ratio, 0.0))
    uniform = torch.rand(len(probability), dtype=torch.float64, generator=generator).numpy()
    accepted = torch.from_numpy(uniform < probability)
    return chosen(accepted, proposed, evaluation, state), Info(accepted, torch.from_numpy(probability))


def base_gain(state: State, evaluation: Evaluation) -> Tensor:
    """ln of how much likelier the proposal is than the state in the base that inputs come from."""
    return evaluation.extras["log_base"].sum(dim=1) - state.extras["log_base"].sum(dim=1)


def chosen(accepted: Tensor, proposed: Tensor, evaluation: Evaluation, state: State) -> State:
    """The proposal where accepted, the present state elsewhere."""
    moved = accepted.numpy()

    def pick(new: Tensor, old: Tensor) -> Tensor:
        return torch.from_numpy(np.where(moved.reshape(-1, *[1] * (new.ndim - 1)), new.numpy(), old.numpy()))

    extras = {name: pick(value, state.extras[name]) for name, value in evaluation.extras.items()}
    return State(pick(proposed, state.sites), pick(evaluation.outputs, state.outputs), extras)
