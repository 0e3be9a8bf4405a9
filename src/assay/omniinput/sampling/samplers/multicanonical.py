"""Multicanonical sampling: a flat histogram over the outputs instead of a ladder, as an independent check.

Weights 1/g(z) start from a short tempering run, not from zero: a newly found bin that starts at ln g = 0
traps walkers. They are corrected once from the flat run itself, as a Wang-Landau stage would, and then
frozen, so that what is counted obeys detailed balance exactly (Berg and Neuhaus 1992; Wang and Landau 2001).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.omniinput.sampling import convergence
from assay.omniinput.sampling.assembly import assembled, common_diagnostics, effective_samples, kept_inputs
from assay.omniinput.sampling.density_estimate import DensityEstimate, LadderSolver, estimate
from assay.omniinput.sampling.distribution import OutputDistribution
from assay.omniinput.sampling.kernels.chain import Kernel, State
from assay.omniinput.sampling.ladder_record import LadderRecord
from assay.omniinput.sampling.plan import Budget, Plan
from assay.omniinput.sampling.problem import Evaluated, Problem
from assay.omniinput.sampling.replica_exchange import RoundTrips
from assay.omniinput.sampling.reweighting import summed_by
from assay.omniinput.sampling.samplers.tempering import Tempering

Array = NDArray[np.float64]

TEMPERING_SHARE = 0.3  # of the budget, for the first weights
CORRECTION_SHARE = 0.45  # of the budget, when the weights are corrected and frozen
KNOTS = 60
MOST_WALKERS = 16  # per ensemble
WALKER_STEPS = 5_000  # at least, if the budget allows: many short walks never cross the outputs


@dataclass(frozen=True)
class Flat:
    """The target 1/g(z): ln g is linear between knots and continues beyond them with the last slope."""

    knots: Tensor
    log_g: Tensor

    def log_weight(self, outputs: Tensor) -> Tensor:
        segment = self._segment(outputs)
        return -(self.log_g[segment] + self._slopes()[segment] * (outputs - self.knots[segment]))

    def slope(self, outputs: Tensor) -> Tensor:
        return -self._slopes()[self._segment(outputs)]

    def _segment(self, outputs: Tensor) -> Tensor:
        return (torch.searchsorted(self.knots, outputs.contiguous()) - 1).clamp(0, len(self.knots) - 2)

    def _slopes(self) -> Tensor:
        return self.log_g.diff() / self.knots.diff()

    def solve(self, outputs: Array, counts: Array) -> tuple[Array, Array]:
        """ln Omega = ln H + ln g: the weights are known, there is nothing to solve."""
        return self.nearby(outputs, counts, np.zeros(0))(counts), np.zeros(0)

    def nearby(self, outputs: Array, counts: Array, solution: Array) -> Callable[[Array], Array]:
        log_weight = self.log_weight(torch.from_numpy(outputs)).numpy()

        def log_counts(counts: Array) -> Array:
            with np.errstate(divide="ignore"):
                return np.asarray(np.log(counts) - log_weight)

        return log_counts


@dataclass
class Multicanonical:
    """A run that can stop after any chunk: tempering first, then walkers on the flat target."""

    problem: Problem
    kernels: list[Kernel]
    plan: Plan
    budget: Budget
    generator: torch.Generator
    pilot: Tempering = field(init=False)
    target: Flat | None = None
    state: State | None = None
    record: LadderRecord | None = None
    trips: RoundTrips | None = None
    ends: tuple[float, float] = (0.0, 0.0)
    moves: int = 0
    frozen: bool = False

    def __post_init__(self) -> None:
        self.pilot = Tempering(self.problem, self.kernels, self.plan, self.budget, self.generator)

    def begin(self) -> None:
        self.pilot.begin()

    @property
    def rows(self) -> int:
        return self.plan.ensembles * self.walkers

    @property
    def walkers(self) -> int:
        """Per ensemble."""
        if self.budget.evaluations is None:
            return MOST_WALKERS
        affordable = self.budget.evaluations // (2 * self.plan.ensembles * WALKER_STEPS)
        return max(2, min(MOST_WALKERS, affordable))

    @property
    def finished(self) -> bool:
        return not self.budget.allows(self.problem.evaluations + max(self.rows, self.pilot.rows))

    def advance(self) -> None:
        """One chunk of tempering, or of the flat walk; weights change only between the stages."""
        spent = self.budget.fraction(self.problem.evaluations)
        if self.target is None:
            self.pilot.advance()
            if self.pilot.frozen and spent >= TEMPERING_SHARE:
                self._start()
            return
        self._walk()
        if not self.frozen and spent >= CORRECTION_SHARE:
            self._correct()

    def _start(self) -> None:
        """Walkers spread over the rungs of the ladder, weights from its reweighted counts."""
        pilot = self.pilot
        assert pilot.record is not None
        assert pilot.state is not None
        counts, outputs = _pooled(pilot.record)
        log_counts, _ = LadderSolver(pilot.betas).solve(outputs, counts)
        self._aim(outputs, log_counts)
        rungs = len(pilot.betas)
        spread = np.linspace(0, rungs - 1, self.walkers).round().astype(int)
        rows = (np.arange(self.plan.ensembles)[:, None] * rungs + spread).ravel()
        self.state = pilot.state.rows(rows)
        self._open_record(pilot.record)

    def _correct(self) -> None:
        """Correct the weights from the flat walk itself, and freeze them."""
        assert self.record is not None
        assert self.target is not None
        counts, outputs = _pooled(self.record)
        log_counts, _ = self.target.solve(outputs, counts)
        self._aim(outputs, log_counts)
        self._open_record(self.record)
        self.frozen = True

    def _aim(self, outputs: Array, log_counts: Array) -> None:
        """Knots at the visited cells of an even grid over the bins and the bulk."""
        assert self.pilot.record is not None
        seen = np.isfinite(log_counts)
        outputs, log_counts = outputs[seen], log_counts[seen]
        bulk = float(outputs[np.argmax(log_counts)])
        edges = self.pilot.record.edges
        low, high = min(edges[0], bulk), max(edges[-1], bulk)
        grid = np.linspace(max(low, outputs.min()), min(high, outputs.max()), KNOTS + 1)
        cell = np.clip(np.searchsorted(grid, outputs, side="right") - 1, -1, KNOTS)
        log_g = summed_by(cell, log_counts, KNOTS)
        centres = (grid[1:] + grid[:-1]) / 2
        filled = np.isfinite(log_g)
        self.target = Flat(torch.from_numpy(centres[filled]), torch.from_numpy(log_g[filled]))
        self.ends = float(centres[filled][0]), float(centres[filled][-1])

    def _open_record(self, like: LadderRecord) -> None:
        self.record = LadderRecord.start(
            like.edges, like.fine, self.plan.ensembles, self.plan.keep, self.problem.space.sites
        )
        self.record.expect(self._log_weight)
        self.trips = RoundTrips.none(self.rows)

    def _log_weight(self, outputs: Array) -> Array:
        """Of a visit to each output."""
        assert self.target is not None
        return np.asarray(-self.target.log_weight(torch.from_numpy(outputs)).numpy())

    def _walk(self) -> None:
        assert self.record is not None
        assert self.state is not None
        assert self.target is not None
        assert self.trips is not None
        visited: list[State] = []
        late = self.budget.elapsed + (self.budget.seconds or np.inf) / 80
        for step in range(max(1, min(128, self.pilot.chunk_steps))):
            if self.finished or (step and self.budget.elapsed > late):
                break
            kernel = self.kernels[self.moves % len(self.kernels)]
            self.state, _ = kernel.step(
                self.state, self.target, self.problem, self.generator, groups=self.plan.ensembles
            )
            self.moves += 1
            outputs = self.state.outputs.numpy()
            low, high = self.ends
            self.trips.touch((outputs <= low).nonzero()[0], [(outputs >= high).nonzero()[0]])
            visited.append(self.state)
        if visited:
            stacked = torch.stack([state.outputs for state in visited]).numpy()
            self.record.add(stacked.reshape(len(visited), self.plan.ensembles, self.walkers))
            thinned = visited[:: max(1, self.rows * self.problem.space.sites // 20_000)]
            outputs = torch.cat([state.outputs for state in thinned]).numpy()
            self.record.offer(torch.cat([state.sites for state in thinned]), outputs, self.generator)

    def estimate(self) -> DensityEstimate:
        if self.record is None or not len(self.record.blocks):
            return self.pilot.estimate()
        assert self.target is not None
        return estimate(self.record, self.target, self.plan.seed)

    @property
    def seen(self) -> tuple[float, float] | None:
        return self.pilot.seen

    def distribution(self) -> OutputDistribution | None:
        """From the flat walk, or from the tempering before it if the walk has not started."""
        if self.record is None or self.target is None or not len(self.record.blocks):
            return self.pilot.distribution()
        assert self.trips is not None
        found, target, record = self.estimate(), self.target, self.record
        kept = kept_inputs(
            record.representatives,
            self.problem.space,
            lambda outputs: self._log_weight(outputs) - record.expected_of(outputs),
        )
        effective = effective_samples(found)
        apart, reasons = convergence.agreement(found.by_ensemble, found.error / found.inflation)
        reasons += convergence.trip_reasons(self.trips.total)
        reasons += convergence.effective_reasons(effective, found.log_density, convergence.LEAST_EFFECTIVE)
        diagnostics = common_diagnostics(self, "multicanonical", found, effective, apart) | {
            "round_trips": self.trips.total,
            "knots": target.knots.numpy(),
            "log_g": target.log_g.numpy(),
        }
        return assembled(self.record.edges, found, self.problem.space, kept, diagnostics, reasons)

    def snapshot(self) -> dict[str, Any]:
        """Everything the next chunk depends on."""
        own: dict[str, Any] = {"pilot": self.pilot.snapshot(), "moves": self.moves, "frozen": self.frozen}
        own |= {"record": self.record, "trips": self.trips, "ends": self.ends, "target": None, "state": None}
        if self.target is not None and self.state is not None:
            own["target"] = [self.target.knots, self.target.log_g]
            own["state"] = [self.state.sites, self.state.outputs, self.state.extras]
        return own

    def evaluated(self) -> list[Evaluated]:
        """Where chains and walkers are, and the inputs kept of every bin."""
        if self.state is None or self.record is None:
            return self.pilot.evaluated()
        walkers = (self.state.sites, self.state.outputs)
        return [*self.pilot.evaluated(), walkers, self.record.representatives.evaluated()]

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Continue from a snapshot exactly as the interrupted run would have."""
        rest = dict(snapshot)
        self.pilot.restore(rest.pop("pilot"))
        target, state = rest.pop("target"), rest.pop("state")
        self.target = None if target is None else Flat(*target)
        self.state = None if state is None else State(*state)
        for name, value in rest.items():
            setattr(self, name, value)


def _pooled(record: LadderRecord) -> tuple[Array, Array]:
    """Counts of all blocks, and the mean output of every fine bin."""
    blocks = record.blocks.sums
    counts, sums = blocks["counts"].sum(axis=(0, 1)), blocks["sums"].sum(axis=(0, 1))
    return counts, np.divide(sums, counts, out=np.zeros_like(counts), where=counts > 0)
