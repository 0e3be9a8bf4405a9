"""Neural proposals: many moves on what a small network guesses the output to be, then one true evaluation.

The network is fitted to the inputs and outputs seen while the ladder adapts (all rungs together), and frozen
with it. Every row then makes some moves of one or two sites on the target of the guess, g(x) in place of the
output; where they end is proposed. These moves are reversible for that target, so the Metropolis-Hastings
choice needs only to correct for what the guess got wrong (the surrogate transition method, Liu 2001, section
9.4.3). The better the guess, the farther an input moves per evaluation of the model. The paper has no such
move.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from assay.omniinput.sampling.kernels.chain import Info, State, Target, metropolis_hastings
from assay.omniinput.sampling.kernels.pairs import uniform_site
from assay.omniinput.sampling.kernels.watched_states import joined
from assay.omniinput.sampling.problem import Problem
from assay.storage import storable

Array = NDArray[np.float64]

MOST_CELLS = 8192  # sites x values; with more, no guess is made and one site is redrawn uniformly
MOST_ROWS = 40_000  # to fit to
PASSES, BATCH, RATE = 30, 256, 3e-3  # of every fit, which goes on from the one before


@storable("omniinput.Guess")
@dataclass
class Guess:
    """Two hidden layers of rectifiers over the sum of a vector per site and value; outputs scaled."""

    table: Tensor  # (sites, values, width)
    weights: list[Tensor]  # (width,), (width, width), (width,), (width,): offset, layer, offset, outputs
    centre: float
    scale: float

    @classmethod
    def untrained(cls, sites: int, values: int, width: int, outputs: Tensor) -> "Guess":
        generator = torch.Generator().manual_seed(0)

        def normal(*shape: int, size: float) -> Tensor:
            return size * torch.randn(*shape, generator=generator)

        layer = normal(width, width, size=(2 / width) ** 0.5)
        weights = [torch.zeros(width), layer, torch.zeros(width), normal(width, size=width**-0.5)]
        scale = float(outputs.std().clamp(min=1e-12))
        return cls(normal(sites, values, width, size=sites**-0.5), weights, float(outputs.mean()), scale)

    def fitted(self, sites: Tensor, outputs: Tensor) -> "Guess":
        """To these, by least squares; takes some passes over them."""
        table = self.table.clone().requires_grad_()
        weights = [part.clone().requires_grad_() for part in self.weights]
        wanted = ((outputs - self.centre) / self.scale).float()
        optimizer = torch.optim.Adam([table, *weights], lr=RATE)
        generator, count = torch.Generator().manual_seed(0), PASSES * -(-len(sites) // BATCH)
        slower = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, count)
        places = torch.arange(sites.shape[1])
        for _ in range(PASSES):
            for rows in torch.split(torch.randperm(len(sites), generator=generator), BATCH):
                offset, layer, second, last = weights
                hidden = (table[places, sites[rows]].sum(dim=1) + offset).relu()
                found = (hidden @ layer + second).relu() @ last
                optimizer.zero_grad()
                torch.autograd.backward(nn.functional.mse_loss(found, wanted[rows]))
                optimizer.step()
                slower.step()
        return Guess(table.detach(), [part.detach() for part in weights], self.centre, self.scale)

    def arrays(self) -> "GuessArrays":
        offset, layer, second, last = (part.numpy() for part in self.weights)
        return GuessArrays(self.table.numpy(), offset, layer, second, last, self.centre, self.scale)


@dataclass(frozen=True)
class GuessArrays:
    """The same in numpy, whose calls cost less than torch's on the few rows of a step."""

    table: NDArray[np.float32]
    offset: NDArray[np.float32]
    layer: NDArray[np.float32]
    second: NDArray[np.float32]
    last: NDArray[np.float32]
    centre: float
    scale: float

    def sums(self, sites: NDArray[np.int64]) -> NDArray[np.float32]:
        """What enters the first layer, (rows, width)."""
        found: NDArray[np.float32] = self.table[np.arange(sites.shape[1]), sites].sum(axis=1) + self.offset
        return found

    def outputs(self, sums: NDArray[np.float32]) -> Tensor:
        hidden = np.maximum(np.maximum(sums, 0) @ self.layer + self.second, 0)
        return torch.from_numpy((hidden @ self.last).astype(np.float64) * self.scale + self.centre)

    def moved(
        self, sites: NDArray[np.int64], target: Target, values: int, steps: int, generator: torch.Generator
    ) -> NDArray[np.int64]:
        """Where so many moves of one site, or of two, lead on the target of the guess."""
        rows, width = sites.shape
        every = np.arange(rows)
        uniform = torch.rand(steps, 6, rows, dtype=torch.float64, generator=generator).numpy()
        log_uniform = np.log(uniform[:, 0])
        place = (uniform[:, 1:3] * width).astype(np.int64)
        place[:, 1] = np.where(uniform[:, 5] < 0.5, place[:, 0], place[:, 1])
        value = (uniform[:, 3:5] * values).astype(np.int64)
        sites, sums = sites.copy(), self.sums(sites)
        weight = target.log_weight(self.outputs(sums)).numpy()
        for step in range(steps):
            first, second = place[step]
            # Where both are one site, it takes the second value.
            new = sites.copy()
            new[every, first] = value[step, 0]
            new[every, second] = value[step, 1]
            changed = sums + self.table[first, new[every, first]] - self.table[first, sites[every, first]]
            other = (first != second)[:, None]
            changed += other * (
                self.table[second, new[every, second]] - self.table[second, sites[every, second]]
            )
            there = target.log_weight(self.outputs(changed)).numpy()
            taken = log_uniform[step] < there - weight
            sites[taken], sums[taken], weight[taken] = new[taken], changed[taken], there[taken]
        return sites


@dataclass(eq=False)
class Neural:
    """One evaluation per row. Before there is a guess, one site is redrawn uniformly."""

    width: int = 64
    steps: int = 64
    gradients: bool = False
    sites: Tensor | None = field(default=None, repr=False)
    outputs: Tensor | None = field(default=None, repr=False)
    guess: Guess | None = field(default=None, repr=False)
    _arrays: GuessArrays | None = field(default=None, repr=False)

    def step(
        self, state: State, target: Target, problem: Problem, generator: torch.Generator, groups: int = 1
    ) -> tuple[State, Info]:
        if self.guess is None:
            return uniform_site(state, target, problem, generator)
        if self._arrays is None:
            self._arrays = self.guess.arrays()
        before = state.sites.numpy()
        after = self._arrays.moved(before, target, problem.space.choices, self.steps, generator)
        weights = [
            target.log_weight(self._arrays.outputs(self._arrays.sums(sites))) for sites in (before, after)
        ]
        proposed = torch.from_numpy(after)
        return metropolis_hastings(
            state, proposed, problem(proposed), weights[0] - weights[1], target, generator
        )

    def watch(self, sites: Tensor, outputs: Tensor, rungs: int, values: int) -> None:
        if sites.shape[1] * values <= MOST_CELLS:
            self.sites, self.outputs = joined((self.sites, self.outputs), sites, outputs, MOST_ROWS)

    def learn(self, nearest: NDArray[np.int64], betas: Array, values: int, frozen: bool) -> None:
        """One guess for every rung of every ladder."""
        if self.sites is None or self.outputs is None:
            return
        guess = self.guess or Guess.untrained(self.sites.shape[1], values, self.width, self.outputs)
        self.guess, self._arrays = guess.fitted(self.sites, self.outputs), None
        if frozen:
            self.sites = self.outputs = None

    def snapshot(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("guess", "sites", "outputs")}

    def restore(self, snapshot: dict[str, Any]) -> None:
        for name, value in snapshot.items():
            setattr(self, name, value)
        self._arrays = None
