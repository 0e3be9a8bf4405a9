"""Checkpoint: a run on disk, which continues exactly as if it had never stopped."""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch

from assay.errors import InputError
from assay.omniinput.sampling.distribution import OutputDistribution
from assay.omniinput.sampling.plan import Budget, Plan
from assay.omniinput.sampling.problem import Evaluated, Problem, SamplingError
from assay.omniinput.sampling.space import InputSpace
from assay.storage import load, save, storable

COMPARED = 64
"""Inputs of a checkpoint that are evaluated again before the run continues."""

SAME_DENSITIES = 1e-4
"""Relative to the range of the outputs: a model this close has the same densities."""

ROUNDING = 1e-6
"""Relative to the size of the outputs. Single precision in batches of another size moved those of a residual
network of 19 layers and of a transformer of 6 by 3e-7 at most."""

HALF_ROUNDING = 1e-2
"""The same where the weights are known to be equal: half precision has steps of 0.004."""


class Run(Protocol):
    """Interface of all samplers: they advance by chunks until finished, and can stop between any two."""

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

    def evaluated(self) -> list[Evaluated]: ...

    def distribution(self) -> OutputDistribution | None:
        """The distribution so far; None if too little was sampled for one."""

    @property
    def seen(self) -> tuple[float, float] | None:
        """The smallest and the largest output so far, if the sampler records them."""


@storable("omniinput.Checkpoint")
@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The snapshot of a run with its settings, so that it is only continued with the same ones."""

    plan: Plan
    space: InputSpace
    method: str
    model: str | None
    """A hash of the model's weights, if it has any (see `model_identity`)."""
    elapsed: float
    snapshot: dict[str, Any]


@dataclass
class Keeper:
    """Writes checkpoints of a run to `path`, at most one every `every` seconds; without a path, none."""

    path: str | os.PathLike[str] | None
    space: InputSpace
    method: str
    model: str | None
    every: float
    written: float = field(default_factory=time.monotonic)

    def resume(self, run: Run) -> bool:
        """Continue the run on disk, if there is one; refuse it if its settings or its model differ."""
        if self.path is None or not Path(self.path).exists():
            return False
        found: Checkpoint = load(self.path, kind="omniinput.Checkpoint")
        differences = found.plan.differences(run.plan)
        differences += [] if _same(found.space, self.space) else ["space"]
        differences += [] if found.method == self.method else ["sampler or kernel"]
        if differences:
            raise InputError(
                f"expected {self.path} to contain a run with the same settings, got one with another "
                f"{' and '.join(differences)}; resume with the same settings or remove the file"
            )
        known = found.model is not None and self.model is not None
        if known and found.model != self.model:
            raise self._of_another_model("its weights differ")
        run.restore(found.snapshot)
        self._check_outputs(run, HALF_ROUNDING if known else ROUNDING)
        run.budget.earlier = found.elapsed
        return True

    def _check_outputs(self, run: Run, rounding: float) -> None:
        """Evaluate some of the inputs on disk again: the same model gives the same outputs."""
        sites, then = (torch.cat(parts) for parts in zip(*run.evaluated(), strict=True))
        chosen = then.argsort()[torch.linspace(0, len(then) - 1, min(COMPARED, len(then))).round().long()]
        sites, then = sites[chosen], then[chosen]
        try:
            now = run.problem.again(sites)
        except SamplingError as error:
            raise self._of_another_model(f"on its inputs this one fails, {error}") from error
        # Of each its own size, and the usual one where sums cancel to nearly zero.
        size = then.abs() + then.abs().quantile(0.75)
        tolerance = SAME_DENSITIES * (then.max() - then.min()) + rounding * size
        differ = ~((now - then).abs() <= tolerance)
        if differ.any():
            row = int(differ.nonzero()[0])
            raise self._of_another_model(
                f"{int(differ.sum())} of {len(then)} inputs kept there have another output, such as "
                f"{float(now[row]):.6g} now and {float(then[row]):.6g} then"
            )

    def _of_another_model(self, reason: str) -> InputError:
        return InputError(
            f"expected {self.path} to contain a run of this model, got that of another: {reason}; give every "
            "model its own checkpoint, or remove the file"
        )

    def keep(self, run: Run, now: bool = False) -> None:
        """Write a checkpoint if one is due, or at once with `now`; called between chunks."""
        if self.path is None or not (now or time.monotonic() - self.written >= self.every):
            return
        checkpoint = Checkpoint(
            run.plan, self.space, self.method, self.model, run.budget.elapsed, run.snapshot()
        )
        save(checkpoint, self.path)
        self.written = time.monotonic()


def _same(one: InputSpace, other: InputSpace) -> bool:
    if (one.shape, one.values, one.end) != (other.shape, other.values, other.end):
        return False
    pairs = ((one.template, other.template), (one.free, other.free), (one.allowed, other.allowed))
    return all(
        mine is theirs or (mine is not None and theirs is not None and torch.equal(mine, theirs))
        for mine, theirs in pairs
    )
