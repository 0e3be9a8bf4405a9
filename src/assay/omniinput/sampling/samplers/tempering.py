"""Parallel tempering: all replicas of all ensembles move in one model call, and the ladder adapts itself."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import logsumexp

from assay.omniinput.sampling import convergence
from assay.omniinput.sampling.assembly import assembled, common_diagnostics, effective_samples, kept_inputs
from assay.omniinput.sampling.density_estimate import (
    ALL_INPUTS,
    Anchor,
    DensityEstimate,
    LadderSolver,
    estimate,
)
from assay.omniinput.sampling.distribution import OutputDistribution
from assay.omniinput.sampling.kernels.chain import (
    Info,
    Kernel,
    Learner,
    State,
    Tempered,
    evaluations_per_row,
    init,
)
from assay.omniinput.sampling.ladder import Reach, Visit, first_ladder, grew, next_ladder
from assay.omniinput.sampling.ladder_record import LadderRecord
from assay.omniinput.sampling.output_bins import fine_edges
from assay.omniinput.sampling.plan import Budget, Plan
from assay.omniinput.sampling.problem import Evaluated, Problem, SamplingError
from assay.omniinput.sampling.replica_exchange import RoundTrips, Rows, swap_rejections, swapped
from assay.omniinput.sampling.reweighting import log_mixture
from assay.omniinput.sampling.turns import Turns

Array = NDArray[np.float64]

PROBE = 128  # uniform draws that show the bulk of the outputs
FIRST_RUNGS = 8
LEAST_ROUND = 16  # steps
ROUNDS = 5  # of adaptation at least, each twice as long as the one before


@dataclass
class Tempering:
    """A run that can stop after any chunk of steps.

    Rounds move the ladder's ends towards the outermost bins and put its rungs at equal cumulative rejection;
    once the ends have arrived, each round is twice as long as the one before. After a fifth of the budget the
    ladder is frozen, and only what follows is counted. Rows are ordered by ensemble, then by rung, coldest
    last; states move along the ladder, rungs stay in place.
    """

    problem: Problem
    kernels: list[Kernel]
    plan: Plan
    budget: Budget
    generator: torch.Generator
    betas: Array = field(default_factory=lambda: np.zeros(1))
    deviation: float = 1.0
    state: State | None = None
    record: LadderRecord | None = None
    trips: RoundTrips | None = None
    turns: Turns | None = None
    rejections: Array = field(default_factory=lambda: np.zeros(0))
    swaps: int = 0
    moves: int = 0
    accepted: Array = field(default_factory=lambda: np.zeros(0))
    round_steps: int = 0
    frozen: bool = False
    spent_before: float = 0.0  # share of the budget that went to something else
    _tempered: Tempered | None = None
    _home: Rows = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    _ends: list[Rows] = field(default_factory=list)
    anchor: Anchor = ALL_INPUTS  # the first rung, if not zero, and what is known about it

    def begin(self) -> None:
        """Draw uniformly, learn where the bulk of the outputs lies, and set up the first ladder."""
        count = PROBE if self.budget.evaluations is None else min(PROBE, self.budget.evaluations // 4)
        drawn = self._probe(max(count, 2))
        self.deviation = float(drawn.outputs.std())
        if self.deviation == 0.0:
            raise SamplingError(
                f"expected outputs that differ, got {float(drawn.outputs[0]):g} for all {len(drawn.outputs)} "
                "inputs drawn at random; check the output function, a constant has no distribution to sample"
            )
        mean = float(drawn.outputs.mean())
        rungs = self.plan.replicas or FIRST_RUNGS
        self.betas = self.anchor.beta + first_ladder(mean, self.deviation, self.reach, rungs)
        self.round_steps = self._first_round()
        self.turns = Turns.among(self.kernels, len(self.betas))
        rows = np.arange(self.rows) % len(drawn.outputs)
        self.state = self._on_ladder(drawn.rows(rows))
        low, high = float(drawn.outputs.min()), float(drawn.outputs.max())
        self._open_record(low, high)

    def _probe(self, count: int) -> State:
        """States of the first rung: uniform inputs, or draws of the language model itself."""
        self.problem.prepare(np.array([self.anchor.beta]))
        return init(self.problem.draw(count, self.generator), self.problem)

    @property
    def reach(self) -> Reach:
        """A ladder that starts at an anchor beyond zero goes to the colder side only."""
        reach = self.plan.reach()
        return reach if self.anchor.beta == 0.0 else Reach(reach.low, reach.low)

    @property
    def learners(self) -> list[Learner]:
        return list(dict.fromkeys(kernel for kernel in self.kernels if isinstance(kernel, Learner)))

    def _first_round(self) -> int:
        """Enough steps to change every site a few times, few enough for several rounds in a small budget.

        If only seconds are given, the cost of a step is unknown and rounds start short.
        """
        thorough = 4 * self.problem.space.sites
        if self.budget.evaluations is None:
            return LEAST_ROUND
        left = self.budget.evaluations * self.plan.adapt_share * (1 - self.spent_before)
        affordable = left / (self.rows * self.cost * 2**ROUNDS)
        return int(np.clip(affordable, LEAST_ROUND, max(LEAST_ROUND, thorough)))

    @property
    def rows(self) -> int:
        return self.plan.ensembles * len(self.betas)

    @property
    def chunk_steps(self) -> int:
        """Steps per chunk: enough to hide bookkeeping, few enough to give time blocks in a small budget."""
        most = max(1, min(256, 4096 // self.rows))
        if not self.frozen:
            most = max(1, min(most, self.round_steps // 8))
        if self.budget.evaluations is None:
            return most
        return int(np.clip(self.budget.evaluations // (self.rows * self.cost * 80), 1, most))

    @property
    def cost(self) -> int:
        """Evaluations per row of the most expensive kernel."""
        return max(evaluations_per_row(kernel) for kernel in self.kernels)

    @property
    def finished(self) -> bool:
        return not self.budget.allows(self.problem.evaluations + self.rows * self.cost)

    def advance(self) -> None:
        """One chunk of steps; then, while adapting, a new ladder when the round is over."""
        assert self.record is not None
        outputs: list[torch.Tensor] = []
        probability: list[torch.Tensor] = []
        thin = max(1, self.rows * self.problem.space.sites // 20_000)
        kept: list[State] = []
        late = self.budget.elapsed + (self.budget.seconds or np.inf) / 80
        for step in range(self.chunk_steps):
            if self.finished or (step and self.budget.elapsed > late):
                break
            state, info = self._step()
            outputs.append(state.outputs)
            probability.append(info.probability)
            if step % thin == 0:
                kept.append(state)
        if outputs:
            shape = (len(outputs), self.plan.ensembles, len(self.betas))
            chunk = torch.stack(outputs).numpy().reshape(shape)
            self.record.add(chunk)
            self.accepted += torch.stack(probability).sum(dim=0).numpy()
            self.rejections += len(chunk) * swap_rejections(chunk, self.betas)
            sites, found = (
                torch.cat([getattr(state, name) for state in kept]) for name in ("sites", "outputs")
            )
            for learner in [] if self.frozen else self.learners:
                learner.watch(sites, found, len(self.betas), self.problem.space.choices)
            self.record.offer(sites, found.numpy(), self.generator)
        if not self.frozen:
            self._adapt_when_due()

    def _step(self) -> tuple[State, Info]:
        assert self.state is not None
        assert self.turns is not None
        before, turn = self.state.sites, self.turns.next()
        self.state, info = self.kernels[turn].step(
            self.state, self._target(), self.problem, self.generator, groups=self.plan.ensembles
        )
        if not self.frozen:
            self.turns.note(turn, (self.state.sites - before).double().square().sum(dim=1).numpy())
        self.moves += 1
        if self.moves % self.plan.swap_every == 0 and len(self.betas) > 1:
            self.state = self._swap(self.state)
        return self.state, info

    def _target(self) -> Tempered:
        """One beta per row; built once per ladder."""
        if self._tempered is None or len(self._tempered.betas) != self.rows:
            self._tempered = Tempered(torch.from_numpy(self.betas).repeat(self.plan.ensembles))
        return self._tempered

    def _swap(self, state: State) -> State:
        assert self.trips is not None
        state, origin = swapped(state, self.betas, self.plan.ensembles, self.swaps % 2, self.generator)
        if origin is not None:
            self.trips.follow(origin)
        self.trips.touch(self._home, self._ends)
        self.swaps += 1
        return state

    def _adapt_when_due(self) -> None:
        assert self.record is not None
        assert self.state is not None
        enough = self.spent_before + self.plan.adapt_share * (1 - self.spent_before)
        spent = self.budget.fraction(self.problem.evaluations)
        if self.record.steps < self.round_steps and spent < enough:
            return
        self.frozen = spent >= enough
        known = None
        if self.record.steps and self.swaps:
            old = self.betas
            known = self._log_counts() if self.frozen else None
            third, fourth = self._late_means()
            visit = Visit(old, (third + fourth) / 2, fourth - third, self.rejections / self.moves)
            self.betas = next_ladder(
                visit, self.reach, self.deviation, self.plan.replicas, self.plan.most_replicas
            )
            # A ladder that still has to grow needs more rounds, not longer ones.
            self.round_steps *= 1 if grew(old, self.betas) else 2
            nearest = np.abs(old[:, None] - self.betas).argmin(axis=0)
            rows = (np.arange(self.plan.ensembles)[:, None] * len(old) + nearest).ravel()
            self.state = self._on_ladder(self.state.rows(rows))
            assert self.turns is not None
            self.turns = self.turns.learned(len(self.betas))
            for learner in self.learners:
                learner.learn(nearest, self.betas, self.problem.space.choices, self.frozen)
        self._open_record(self.record.lowest, self.record.highest)
        if known is not None:
            self.record.expect(partial(_expected_log_weight, self.betas, *known))

    def _log_counts(self) -> tuple[Array, Array]:
        """Where the fine bins lie, and the log number of inputs in each up to a constant, so far."""
        assert self.record is not None
        outputs, counts = self.record.settled()
        return outputs, LadderSolver(self.betas).solve(outputs, counts)[0]

    def _late_means(self) -> tuple[Array, Array]:
        """Mean output of every rung over the third and over the last quarter of the round."""
        assert self.record is not None
        blocks = self.record.blocks.sums
        count = len(blocks["steps"])
        third, fourth = (
            blocks["rungs"][part].sum(axis=(0, 1)) / (blocks["steps"][part].sum() * self.plan.ensembles)
            for part in (slice(count // 2, max(3 * count // 4, count // 2 + 1)), slice(3 * count // 4, None))
        )
        return third, fourth

    def _on_ladder(self, state: State) -> State:
        """States for the present ladder, evaluated again if their extras depend on the ladder."""
        return init(state.sites, self.problem) if self.problem.prepare(self.betas) else state

    def _open_record(self, low: float, high: float) -> None:
        edges = self.plan.edges
        if edges is None:
            edges = np.linspace(low, high, self.plan.bins + 1)
        steepest = float(np.abs(self.betas).max())
        fine = fine_edges(edges, low, high, steepest)
        self.record = LadderRecord.start(
            edges, fine, self.plan.ensembles, self.plan.keep, self.problem.space.sites
        )
        self._tempered = None
        self._mark_ends()
        self.trips = RoundTrips.none(self.rows, len(self._ends))
        self.rejections, self.swaps = np.zeros(len(self.betas) - 1), 0
        self.accepted, self.moves = np.zeros(self.rows), 0

    def _mark_ends(self) -> None:
        """Find the rows of the rung where states are drawn afresh, and those at the ends of the ladder."""
        first = np.arange(self.plan.ensembles) * len(self.betas)
        home, last = int(np.abs(self.betas - self.anchor.beta).argmin()), len(self.betas) - 1
        self._home = first + home
        self._ends = [first + end for end in (0, last) if end != home]

    def estimate(self) -> DensityEstimate:
        assert self.record is not None
        return estimate(self.record, LadderSolver(self.betas), self.plan.seed, self.anchor)

    @property
    def seen(self) -> tuple[float, float] | None:
        return None if self.record is None else (self.record.lowest, self.record.highest)

    def distribution(self) -> OutputDistribution | None:
        """Reweighted over the ladder; checked for swaps, round trips, agreement, gaps, effective samples."""
        if self.record is None or not self.record.steps:
            return None
        assert self.trips is not None
        assert self.turns is not None
        found, record = self.estimate(), self.record
        betas, draws = self.betas, np.full(len(self.betas), found.steps)
        kept = kept_inputs(
            self.record.representatives,
            self.problem.space,
            lambda outputs: -log_mixture(outputs, betas, draws, found.solution) - record.expected_of(outputs),
        )
        acceptance = 1 - self.rejections / max(self.moves, 1)
        effective = effective_samples(found)
        apart, reasons = convergence.agreement(found.by_ensemble, found.error / found.inflation)
        reasons += convergence.ladder_reasons(acceptance, self.trips.total)
        reasons += convergence.effective_reasons(effective, found.log_density, convergence.LEAST_EFFECTIVE)
        diagnostics = common_diagnostics(self, "tempering", found, effective, apart) | {
            "betas": betas,
            "kernel_shares": self.turns.shares,
            "swap_acceptance": acceptance,
            "round_trips": self.trips.total,
            "acceptance": self.accepted.reshape(self.plan.ensembles, -1).mean(axis=0) / max(self.moves, 1),
            "overlap": _least_overlap(self.record, betas, found),
            "fine_width_times_beta": float(np.diff(self.record.fine).max() * np.abs(betas).max()),
        }
        return assembled(self.record.edges, found, self.problem.space, kept, diagnostics, reasons)

    def snapshot(self) -> dict[str, Any]:
        """Everything the next chunk depends on."""
        assert self.state is not None
        return {
            "betas": self.betas,
            "deviation": self.deviation,
            "sites": self.state.sites,
            "outputs": self.state.outputs,
            "extras": self.state.extras,
            "learners": [learner.snapshot() for learner in self.learners],
            "record": self.record,
            "trips": self.trips,
            "turns": self.turns,
            "rejections": self.rejections,
            "swaps": self.swaps,
            "moves": self.moves,
            "accepted": self.accepted,
            "round_steps": self.round_steps,
            "frozen": self.frozen,
            "spent_before": self.spent_before,
            "anchor": [self.anchor.beta, self.anchor.log_total],
            "generator": self.generator.get_state(),
            "evaluations": self.problem.evaluations,
            "model_seconds": self.problem.seconds,
        }

    def evaluated(self) -> list[Evaluated]:
        """Where the chains are, and the inputs kept of every bin."""
        assert self.state is not None
        assert self.record is not None
        return [(self.state.sites, self.state.outputs), self.record.representatives.evaluated()]

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Continue from a snapshot exactly as the interrupted run would have."""
        rest = dict(snapshot)
        self.state = State(rest.pop("sites"), rest.pop("outputs"), rest.pop("extras"))
        for learner, learned in zip(self.learners, rest.pop("learners"), strict=True):
            learner.restore(learned)
        self.anchor = Anchor(*rest.pop("anchor"))
        self.generator.set_state(rest.pop("generator"))
        self.problem.evaluations = rest.pop("evaluations")
        self.problem.seconds = rest.pop("model_seconds")
        for name, value in rest.items():
            setattr(self, name, value)
        self._mark_ends()
        self.problem.prepare(self.betas)


def _expected_log_weight(betas: Array, outputs: Array, log_counts: Array, at: Array) -> Array:
    """Log weight of a visit to an output by this ladder, if these log counts are right."""
    free_energies = -logsumexp(log_counts[:, None] - outputs[:, None] * betas, axis=0)
    return -log_mixture(at, betas, np.ones(len(betas)), free_energies)


def _least_overlap(record: LadderRecord, betas: Array, found: DensityEstimate) -> float:
    """The smallest entry O(k, k+1) of the overlap matrix of neighbouring rungs (Klimovich et al. 2015)."""
    blocks = record.blocks.whole()
    counts = blocks["counts"][found.dropped :].sum(axis=(0, 1))
    sums = blocks["sums"][found.dropped :].sum(axis=(0, 1))
    seen = counts > 0
    outputs = sums[seen] / counts[seen]
    draws = np.full(len(betas), found.steps)
    weights = np.exp(
        found.solution
        - outputs[:, None] * betas
        - log_mixture(outputs, betas, draws, found.solution)[:, None]
    )
    matrix = found.steps * (weights * counts[seen][:, None]).T @ weights
    return float(np.diag(matrix, 1).min()) if len(betas) > 1 else 1.0
