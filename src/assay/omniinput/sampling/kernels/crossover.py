"""Crossover: two replicas of one ensemble exchange a stretch of sites (Liang and Wong 2000, real crossover).

The move is Metropolis on the joint distribution of the pair, so each keeps its own target. It works for any
black box; if the output is a sum of local terms, it changes only at the two ends of the stretch.
"""

import functools
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.omniinput.sampling.kernels.chain import Info, State, Target, chosen
from assay.omniinput.sampling.problem import Problem

Rows = NDArray[np.int64]


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
        probability, moved = np.zeros(rows), np.zeros(rows, dtype=bool)
        left, paired = _partners(rows, groups, int(torch.randint(2, (), generator=generator)))
        if not len(left):
            return state, Info(torch.from_numpy(moved), torch.from_numpy(probability))
        inside = _stretches(len(left), sites, generator)
        before = state.rows(paired)
        one, other = before.sites.numpy().reshape(2, len(left), sites)
        exchanged = np.concatenate([np.where(inside, other, one), np.where(inside, one, other)])
        proposed = torch.from_numpy(exchanged)
        evaluation = problem(proposed)
        outputs = state.outputs.clone()
        outputs.numpy()[paired] = evaluation.outputs.numpy()
        gain = (target.log_weight(outputs) - target.log_weight(state.outputs)).numpy()
        probable = np.exp(np.minimum(gain[paired].reshape(2, -1).sum(axis=0), 0.0))
        uniform = torch.rand(len(left), dtype=torch.float64, generator=generator).numpy()
        accepted = np.tile(uniform < probable, 2)
        after = chosen(torch.from_numpy(accepted), proposed, evaluation, before)
        probability[paired], moved[paired] = np.tile(probable, 2), accepted
        info = Info(torch.from_numpy(moved), torch.from_numpy(probability))
        return _with_rows(state, paired, after), info


def _stretches(count: int, sites: int, generator: torch.Generator) -> NDArray[np.bool_]:
    """Which sites of each pair are exchanged, (count, sites)."""
    one, other, half = torch.rand(3, count, 1, dtype=torch.float64, generator=generator).numpy()
    first, last = (one * (sites + 1)).astype(np.int64), (other * (sites + 1)).astype(np.int64)
    place = np.arange(sites)
    end = np.where(half < 0.5, sites, np.maximum(first, last))
    return np.asarray((place >= np.minimum(first, last)) & (place < end))


@functools.lru_cache(maxsize=8)
def _partners(rows: int, groups: int, parity: int) -> tuple[Rows, Rows]:
    """The first row of each pair (k, k + 1) inside its group, and all first rows before all second ones."""
    size = rows // groups
    within = np.arange(parity, size - 1, 2)
    left = (np.arange(groups)[:, None] * size + within).ravel()
    return left, np.concatenate([left, left + 1])


def _with_rows(state: State, index: Rows, new: State) -> State:
    def put(old: Tensor, rows: Tensor) -> Tensor:
        changed = old.numpy().copy()
        changed[index] = rows.numpy()
        return torch.from_numpy(changed)

    extras = {name: put(value, new.extras[name]) for name, value in state.extras.items()}
    return State(put(state.sites, new.sites), put(state.outputs, new.outputs), extras)
