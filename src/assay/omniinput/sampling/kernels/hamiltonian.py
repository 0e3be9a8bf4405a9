"""Hamiltonian move for ordered values: all sites drift together along the gradient, many small steps at once.

Each value is a cell of the unit interval, and that interval the distribution function of a normal variable y:
uniform inputs are normal vectors, and the target is a normal density times exp(log weight of the output). A
place inside the cell is redrawn before every move, exactly, because the target does not depend on it. The
normal part is solved by rotation and only the output's force by kicks (Shahbaba et al. 2014), so that
without a force every step is exact. The output at the end is that of the value itself, never of y, so the
Metropolis-Hastings choice is exact. The paper has no such move.
"""

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.errors import GradientError
from assay.omniinput.sampling.kernels.chain import Info, State, Target, metropolis_hastings
from assay.omniinput.sampling.problem import Evaluation, Problem

GOAL = 0.65  # of the acceptance; from 0.6 to 0.8 is as good (Beskos et al. 2013)
RATE = 0.05  # of the logarithm of the step per move, and per unit that the acceptance is off
SMALLEST = 1e-3
INSIDE = 1e-7  # least distance of a place from the ends of the unit interval


@dataclass(eq=False)
class Hamiltonian:
    """`leaps` evaluations with gradient per row; the step of each rung is learned while the ladder adapts.

    Steps turn y by an angle. Without a force, a quarter turn in `leaps` steps redraws the whole input, so the
    turn is never larger; a random reduction of up to a fifth keeps orbits from closing.
    """

    leaps: int = 4
    gradients: bool = True
    angles: Tensor | None = field(default=None, repr=False)  # per rung
    seen: Tensor | None = field(default=None, repr=False)  # acceptance of the rows since the last look
    looks: int = field(default=0, repr=False)

    @property
    def evaluations(self) -> int:
        """Per row and step."""
        return self.leaps

    def step(
        self, state: State, target: Target, problem: Problem, generator: torch.Generator, groups: int = 1
    ) -> tuple[State, Info]:
        rows, values = len(state.sites), problem.space.choices
        angle = self._angles(rows, groups) * (1 - 0.2 * torch.rand(rows, 1, generator=generator))
        turn, cross = angle.cos(), angle.sin()
        place = _placed(state.sites, values, generator)
        speed = torch.randn(place.shape, generator=generator)
        before = _energy(place, speed)
        force = _force(place, state.outputs, state.extras, target, values)
        for _ in range(self.leaps):
            speed += angle / 2 * force
            place, speed = turn * place + cross * speed, turn * speed - cross * place
            proposed = (torch.special.ndtr(place) * values).long().clamp_(max=values - 1)
            evaluation: Evaluation = problem(proposed)
            force = _force(place, evaluation.outputs, evaluation.extras, target, values)
            speed += angle / 2 * force
        log_hastings = before - _energy(place, speed)
        state, info = metropolis_hastings(state, proposed, evaluation, log_hastings, target, generator)
        self.seen = info.probability if self.seen is None else self.seen + info.probability
        self.looks += 1
        return state, info

    def _angles(self, rows: int, groups: int) -> Tensor:
        """The angle of every row; a quarter turn before anything is learned."""
        if self.angles is None or len(self.angles) * groups != rows:
            self.angles = torch.full((rows // groups,), math.pi / 2 / self.leaps)
            self.seen, self.looks = None, 0
        return self.angles.repeat(groups)[:, None]

    def watch(self, sites: Tensor, outputs: Tensor, rungs: int, values: int) -> None:
        """Longer steps for rungs that accepted more than the goal since the last look, shorter for others."""
        if self.angles is not None and self.seen is not None and len(self.angles) == rungs:
            off = self.seen.reshape(-1, rungs).mean(dim=0) / self.looks - GOAL
            rate = min(1.0, RATE * self.looks * len(self.seen) / rungs)
            longest = math.pi / 2 / self.leaps
            self.angles = (self.angles * (rate * off).exp().float()).clamp(SMALLEST, longest)
        self.seen, self.looks = None, 0

    def learn(
        self, nearest: NDArray[np.int64], betas: NDArray[np.float64], values: int, frozen: bool
    ) -> None:
        """Steps for a new ladder, each rung with that of the old rung nearest to it."""
        if self.angles is not None:
            self.angles = self.angles[torch.from_numpy(nearest)]
        self.seen, self.looks = None, 0

    def snapshot(self) -> dict[str, Tensor | int | None]:
        return {"angles": self.angles, "seen": self.seen, "looks": self.looks}

    def restore(self, snapshot: dict[str, Tensor | None]) -> None:
        for name, value in snapshot.items():
            setattr(self, name, value)


def _placed(sites: Tensor, values: int, generator: torch.Generator) -> Tensor:
    """The normal variable at a place drawn uniformly inside the cell of every value."""
    inside = torch.rand(sites.shape, generator=generator)
    place: Tensor = torch.special.ndtri(((sites + inside) / values).clamp_(INSIDE, 1 - INSIDE))
    return place


def _energy(place: Tensor, speed: Tensor) -> Tensor:
    return (place.square() + speed.square()).sum(dim=1, dtype=torch.float64) / 2


def _force(place: Tensor, outputs: Tensor, extras: dict[str, Tensor], target: Target, values: int) -> Tensor:
    """How the log target grows with y: its slope, times that of the output, times that of the value."""
    slopes = extras["slopes"]
    if slopes.shape[2] != 1:
        raise GradientError(
            "expected ordered values (an output function that takes floats) for the kernel 'hamiltonian', "
            "got gradients of one-hot inputs; use 'tilted', 'informed' or 'langevin' with relaxed="
        )
    density = (-place.square() / 2).exp_() * (values / math.sqrt(2 * math.pi))
    return density * slopes[:, :, 0] * target.slope(outputs)[:, None].to(slopes.dtype)
