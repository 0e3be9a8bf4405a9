"""Checkpoint: a run on disk, from which it goes on exactly as if it had never stopped."""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch

from assay.errors import InputError
from assay.omniinput.plan import Budget, Plan
from assay.omniinput.problem import Problem
from assay.omniinput.space import InputSpace
from assay.storage import load, save, storable


class Run(Protocol):
    """What samplers share: they advance by chunks until finished, and can be stopped between any two."""

    plan: Plan
    budget: Budget

    @property
    def problem(self) -> Problem: ...

    @property
    def finished(self) -> bool: ...

    def begin(self) -> None: ...

    def advance(self) -> None: ...

    def snapshot(self) -> dict[str, Any]: ...

    def restore(self, snapshot: dict[str, Any]) -> None: ...


@storable("omniinput.Checkpoint")
@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The snapshot of a run, and what it was asked, so that it is never continued as something else."""

    plan: Plan
    space: InputSpace
    method: str
    elapsed: float
    snapshot: dict[str, Any]


@dataclass
class Keeper:
    """Writes checkpoints of a run to `path`, at most one every `every` seconds; without a path, none."""

    path: str | os.PathLike[str] | None
    space: InputSpace
    method: str
    every: float
    written: float = field(default_factory=time.monotonic)

    def resume(self, run: Run) -> bool:
        """Take up the run on disk, if there is one; refuse it if it answers another question."""
        if self.path is None or not Path(self.path).exists():
            return False
        found: Checkpoint = load(self.path, kind="omniinput.Checkpoint")
        differences = found.plan.differences(run.plan)
        differences += [] if _same(found.space, self.space) else ["space"]
        differences += [] if found.method == self.method else ["sampler or kernel"]
        if differences:
            raise InputError(
                f"expected {self.path} to hold a run with the same settings, got one with another "
                f"{' and '.join(differences)}; resume with the same settings or remove the file"
            )
        run.restore(found.snapshot)
        run.budget.earlier = found.elapsed
        return True

    def keep(self, run: Run, now: bool = False) -> None:
        """Between two chunks: write if it is time."""
        if self.path is None or not (now or time.monotonic() - self.written >= self.every):
            return
        save(Checkpoint(run.plan, self.space, self.method, run.budget.elapsed, run.snapshot()), self.path)
        self.written = time.monotonic()


def _same(one: InputSpace, other: InputSpace) -> bool:
    if one.shape != other.shape or one.values != other.values:
        return False
    pairs = ((one.template, other.template), (one.free, other.free))
    return all(torch.equal(mine, theirs) for mine, theirs in pairs if mine is not None and theirs is not None)
