"""Importance sampling of a causal language model: sequences of several token temperatures, weighted.

Sequences are drawn token by token with regard to what they lead to, as learned from earlier draws (see
sequences and lookahead). One forward pass gives their probability at every beta, samples are independent, and
sums of weights count inputs absolutely. The last token is summed over instead of drawn (Rao-Blackwell): all
its values are histogrammed with the weight of the first length - 1 tokens. The paper uses tempering alone; on
its kind of problem this needs far fewer evaluations.

If what was learned is not accurate enough, the normalisers of different sequences differ by many nats and few
sequences carry all the weight. Then sequences are selected instead, which stays unbiased. Their probability
is no longer known, so each beta counts where its own outputs lie, and those whose bins are least certain get
more of the sequences (see beta_shares). They come in a few large rounds (see rounds), and as the number of
inputs at each output becomes known, the betas are chosen anew.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import logsumexp

from assay.omniinput.sampling import convergence
from assay.omniinput.sampling.assembly import assembled, common_diagnostics, kept_inputs
from assay.omniinput.sampling.density_estimate import DensityEstimate
from assay.omniinput.sampling.distribution import OutputDistribution
from assay.omniinput.sampling.kernels.suffix import LanguageProblem
from assay.omniinput.sampling.lookahead import Lookahead
from assay.omniinput.sampling.plan import Budget, Plan
from assay.omniinput.sampling.problem import Evaluated
from assay.omniinput.sampling.representatives import Representatives
from assay.omniinput.sampling.samplers.beta_pilot import BetaPilot, drawn_particles
from assay.omniinput.sampling.samplers.beta_shares import log_trust, needed_shares
from assay.omniinput.sampling.samplers.last_token import LastToken
from assay.omniinput.sampling.samplers.output_counts import OutputCounts
from assay.omniinput.sampling.samplers.proposal_betas import PILOT_BETAS, proposal_betas
from assay.omniinput.sampling.samplers.rounds import Round
from assay.omniinput.sampling.samplers.sequences import Sequences, Writer, paths
from assay.omniinput.sampling.samplers.weighted_estimate import effective_sequences, weighted_estimate
from assay.omniinput.sampling.time_blocks import TimeBlocks

Array = NDArray[np.float64]

PILOT_SHARE = 0.1  # of the budget: half to choose the betas, half to learn the lookahead for them
BATCH, SELECTED_BATCH = 256, 1024  # sequences written at once, and learned from before the next ones
ROUND_BATCH = 4096  # the same within a round, where calls for fewer cost more than their numbers
BATCHES = 40  # at least, in a whole run, so that its errors can be told and it ends on time
ROUNDS = 24  # of selected sequences: few enough to select from, many enough to tell their error
LEAST_SHARED = 3  # rounds, before betas get sequences by need
LEAST_GROUP = 16  # sequences per beta and round; fewer are not selected from
# Effective share of the drawn sequences of a beta, below which they are selected. Chosen on the Markov
# model, where drawing is 1.2 times as exact at 0.04 to 0.2, and on stories260K,
# where it is 2 to 3 times less so at 0.01.
ENOUGH_PARTICLES = 0.1
FINE = 1 / 32  # between betas at which the pilot's moments are looked at


@dataclass
class Importance:
    """A run that can stop after any batch: a pilot chooses the betas and learns the lookahead.

    After the pilot, each beta gets an equal share of the sequences, or what it needs. Per time block and bin,
    log sums of weights and of their squares are kept, so that memory does not grow with the number of
    samples. A batch costs length x values on top of the model, and as much for every beta where sequences are
    drawn.
    """

    problem: LanguageProblem
    plan: Plan
    budget: Budget
    generator: torch.Generator
    share: float = 1.0
    betas: Array = field(default_factory=lambda: np.array(PILOT_BETAS))
    edges: Array | None = None
    pilot: BetaPilot = field(default_factory=BetaPilot)
    blocks: TimeBlocks = field(default_factory=lambda: TimeBlocks({}, in_logs=True))
    representatives: Representatives | None = None
    draws: int = 0
    piloting: bool = True
    lookahead: Lookahead | None = None
    selecting: bool = False
    shares: Array | None = None  # of the sequences of a batch, per beta; None: equal ones
    output_counts: OutputCounts = field(default_factory=OutputCounts)  # of selected sequences
    log_totals: Array | None = None  # ln of Z of every beta, as known before the round
    round: Round | None = None  # that has begun
    latest: Evaluated | None = None  # of the last batch, by which a checkpoint recognises its model
    _log_psi: torch.Tensor | None = None

    def begin(self) -> None:
        """Start with an empty lookahead."""
        space = self.problem.lm.space
        self.lookahead = Lookahead.none(self.betas, space.sites - 1, space.choices)

    @property
    def _wanted(self) -> Array:
        """Sequences of each beta in a round: equally many, or by need."""
        count = len(self.betas)
        shares = np.full(count, 1 / count) if self.shares is None else self.shares
        return shares * (self._round_rows if self._in_rounds else self._batch_rows)

    def _sizes(self) -> NDArray[np.int64]:
        return (self._wanted + 1e-9).astype(np.int64).clip(1, self._most_rows)

    @property
    def _in_rounds(self) -> bool:
        return self.selecting and not self.piloting

    @property
    def _affordable(self) -> float:
        return self.budget.affordable(self.problem.evaluations) * self.share

    @property
    def _round_rows(self) -> float:
        """About as many as `ROUNDS` have in a run, and so that nothing of the budget is left at the end."""
        left = self._affordable - self.problem.evaluations
        usual = self._affordable * (1 - PILOT_SHARE) / ROUNDS
        return left / max(1, round(left / usual))

    @property
    def _batch_rows(self) -> int:
        """Of drawn sequences."""
        return min(self._most_rows, max(1, int(self._affordable) // BATCHES))

    @property
    def _most_rows(self) -> int:
        most = ROUND_BATCH if self._in_rounds else SELECTED_BATCH if self.selecting else BATCH
        return min(most, self.problem.lm.most_rows)

    @property
    def finished(self) -> bool:
        """A round is not begun that the budget does not allow; one that time cuts short does not count."""
        evaluations = self.problem.evaluations
        if self.budget.fraction(evaluations) >= self.share:
            return True
        if self.round is not None:
            return False
        after = evaluations + int(self._sizes().sum())
        return not self.budget.allows(after) or (self._in_rounds and after > self._affordable)

    def advance(self) -> None:
        """Write one batch and learn from it; batches of the pilot serve only for learning."""
        self.round = self.round or self._opened()
        part = self.round.part(self._most_rows if self._in_rounds else self.round.rows)
        found = self._written(part)
        self.latest = found.examples()
        # A batch is unbiased whatever was learned before it, so learning need not stop.
        if found.following is not None:
            assert self.lookahead is not None
            alive = torch.from_numpy(np.isfinite(found.log_counts))
            self.lookahead.watch(found.prefixes[alive], found.following[alive], found.own[alive])
            self._log_psi = None
        if self.piloting:
            self._learn(found)
        else:
            self._add(found, part)

    def _opened(self) -> Round:
        """A round; what its selected sequences count by is fixed before the first of them."""
        if self._in_rounds:
            self._divide()
            self.log_totals = self.output_counts.log_totals(self.betas)
        return Round(self._sizes())

    def _divide(self) -> None:
        """A beta with more sequences than fit one call stands there several times, each with a selection."""
        betas, which = np.unique(self.betas, return_inverse=True)
        wanted = np.bincount(which, self._wanted)
        parts = np.ceil(wanted / self._most_rows).astype(np.int64)
        if not np.array_equal(betas.repeat(parts), self.betas):
            self.betas, self.shares = betas.repeat(parts), (wanted / wanted.sum() / parts).repeat(parts)
            self._log_psi = None

    def _written(self, part: slice) -> Sequences:
        assert self.round is not None
        assert self.lookahead is not None
        if self._log_psi is None and self.lookahead.batches:
            places = self.problem.lm.length - 1
            along = paths(self.betas, places) if self._in_rounds else None
            self._log_psi = self.lookahead.log_values(along).float()
        writer = Writer(self.problem, self.betas, self._log_psi, self.lookahead.entry, self.generator)
        if self.selecting:
            return writer.selected(self.round.sizes, part, learn=self.piloting)
        return writer.drawn(self.round.sizes)

    def _learn(self, found: Sequences) -> None:
        """From a batch of the pilot: which betas the bins need, then whether to select."""
        assert self.round is not None
        spent = self.budget.fraction(self.problem.evaluations) / (self.share * PILOT_SHARE)
        if self.selecting:
            self.log_totals = found.by_beta(found.log_counts - self.betas[found.own.numpy()] * found.outputs)
            self.output_counts.add(found.outputs, self._log_weights(found))
            self.pilot.particles.append(drawn_particles(found, self.betas))
        elif self.edges is None:
            self.pilot.watch_drawn(found.outputs.reshape(len(self.betas), -1))
            if spent >= 0.5:
                self._choose_betas()
        self.round = None
        # What is selected counts by totals that were learned before.
        self.piloting = spent < 1.0 or (self.selecting and not self.pilot.particles)
        if not self.piloting and self.selecting:
            self.selecting = bool(np.mean(self.pilot.particles) < ENOUGH_PARTICLES)
            if self.selecting:
                self._choose_tempered_betas()

    def _choose_betas(self) -> None:
        """Choose the bins, if none were given, and the betas whose draws cover them."""
        betas = np.array(PILOT_BETAS)
        means, deviations = self.pilot.drawn_moments()
        means *= self._whole
        self.edges = self.plan.edges
        if self.edges is None:
            low, high = means[betas == 2.0][0], (means + 2 * deviations)[betas == 0.0][0]
            self.edges = np.linspace(low, high, self.plan.bins + 1)
        self.betas = proposal_betas(betas, means, deviations, *self._reach)
        assert self.lookahead is not None
        self.lookahead = self.lookahead.moved(self.betas)
        least = LEAST_GROUP * len(self.betas)
        self.selecting = self.problem.lm.most_rows >= LEAST_GROUP and self._affordable >= ROUNDS * least
        self.representatives = Representatives.empty(
            len(self.edges) - 1, self.plan.keep, self.problem.lm.length
        )

    def _choose_tempered_betas(self) -> None:
        """Selected sequences follow p(x)^beta itself, which falls faster with beta than what is drawn."""
        betas = np.arange(PILOT_BETAS[0], PILOT_BETAS[-1] + FINE, FINE)
        means, deviations = self.output_counts.moments(betas)
        self.betas = proposal_betas(betas, means * self._whole, deviations, *self._reach)
        self.shares = self._log_psi = None

    @property
    def _whole(self) -> float:
        """Of the output of a prefix: the last token is assumed to cost as much as the others."""
        return self.problem.lm.length / (self.problem.lm.length - 1)

    @property
    def _reach(self) -> tuple[float, float]:
        """The centres of the lowest and the highest bin."""
        assert self.edges is not None
        return float(self.edges[:2].mean()), float(self.edges[-2:].mean())

    def _log_weights(self, found: Sequences) -> Array:
        """ln weights whose mean over all rows is a share of all inputs.

        What selected sequences count by follows from what was learned before their round, so that all its
        parts have the same.
        """
        assert self.round is not None
        log_weights = found.log_counts + np.log(self.round.rows) - self.problem.space.log_size
        if self.selecting:
            assert self.log_totals is not None
            own = found.own.numpy()
            trust = log_trust(-found.outputs, self.betas, self.log_totals, self.round.sizes)
            log_weights += trust[np.arange(len(own)), own]
        return np.asarray(log_weights)

    def _add(self, found: Sequences, part: slice) -> None:
        """Add all last tokens to the histogram; offer every complete sequence as a representative input."""
        assert self.edges is not None
        assert self.round is not None
        log_weights, last = self._log_weights(found), LastToken(found, self.edges)
        counts = last.counts()
        with np.errstate(divide="ignore"):
            contributions = log_weights[:, None] + np.log(counts)
        self.round.add(
            part,
            {
                "bins": logsumexp(contributions, axis=0),
                "squares": logsumexp(2 * contributions, axis=0),
                "inputs": np.asarray(logsumexp(log_weights + np.log(found.completions))),
                "likelihood": np.asarray(logsumexp(log_weights - found.outputs)),
                "rows": np.asarray(np.log(len(counts))),
            },
        )
        self.draws += len(counts)
        if self.selecting:
            self.output_counts.add(found.outputs, log_weights)
        self._offer(found, log_weights, last, counts)
        if self.round.whole:
            self._close()

    def _close(self) -> None:
        """A whole round counts, and the next one learns from it."""
        assert self.round is not None
        sums = dict(self.round.log_sums)
        if self.selecting:  # sequences of a round are not independent of each other; rounds are
            sums["squares"] = 2 * sums["bins"]
        self.blocks.add(sums | {"batches": np.zeros(())})
        self.round = None
        if self.selecting:
            self._share_out()

    def _share_out(self) -> None:
        """After 1, 2, 4, ... rounds choose the betas anew; those whose bins are least certain get more."""
        blocks = self.blocks.whole()
        rounds = round(float(np.exp(logsumexp(blocks["batches"]))))
        if rounds.bit_count() == 1:
            self._choose_tempered_betas()
        if len(blocks["bins"]) >= LEAST_SHARED:
            assert self.edges is not None
            sizes, centres = self._sizes(), (self.edges[1:] + self.edges[:-1]) / 2
            log_totals = self.output_counts.log_totals(self.betas)
            trust = log_trust(-centres / self._whole, self.betas, log_totals, sizes)
            self.shares = needed_shares(blocks["bins"], np.exp(trust).T, sizes)

    def _offer(self, found: Sequences, log_weights: Array, last: LastToken, counts: Array) -> None:
        assert self.representatives is not None
        generator = np.random.default_rng(int(torch.randint(2**62, (), generator=self.generator)))
        rows, bins, keys = self.representatives.winners(log_weights, counts, generator)
        tokens = last.chosen(rows, bins, generator)
        chosen = torch.from_numpy(rows)
        sites = torch.cat([found.prefixes[chosen], tokens[:, None]], dim=1)
        outputs = found.outputs[rows] - found.last.picked(chosen).of(tokens).numpy()
        self.representatives.offer(sites, outputs, log_weights[rows], keys, bins)

    def estimate(self) -> DensityEstimate:
        return weighted_estimate(
            self.blocks.whole(), self.betas, self.draws, self.plan.seed, self.effective()
        )

    def effective(self) -> Array:
        """Effective sample size of every bin."""
        return effective_sequences(self.blocks.whole(), self.selecting)

    @property
    def least_effective(self) -> float:
        """Effective samples that every bin needs. Those of a selection are told by how rounds differ, those
        of drawn sequences by their weights, of which the largest may not have been met."""
        return (
            convergence.LEAST_SELECTED_EFFECTIVE if self.selecting else convergence.LEAST_IMPORTANCE_EFFECTIVE
        )

    def mean_at_one(self) -> float:
        """The mean output of the model's own samples, from the pilot."""
        return float(np.interp(1.0, PILOT_BETAS, self.pilot.drawn_moments()[0])) * self._whole

    def anchors(self) -> tuple[float, float]:
        """How far, in nats, ln sum w is from the number of inputs and ln sum w e^-z from its known value.

        The latter is NaN if the value is not known.
        """
        blocks = self.blocks.whole()
        rows = logsumexp(blocks["rows"])
        lm = self.problem.lm
        likelihood = logsumexp(blocks["likelihood"]) - rows + lm.space.log_size
        known = np.nan if lm.log_total_likelihood is None else lm.log_total_likelihood
        return float(logsumexp(blocks["inputs"]) - rows), float(likelihood - known)

    seen: ClassVar[None] = None  # it keeps weights, not visits

    def distribution(self) -> OutputDistribution | None:
        """On an absolute scale; checked for effective samples, agreement of halves, gaps and known sums."""
        if not len(self.blocks):
            return None
        assert self.edges is not None
        assert self.representatives is not None
        found = self.estimate()
        kept = kept_inputs(self.representatives, self.problem.space, np.zeros_like)
        effective = self.effective()
        apart, reasons = convergence.agreement(found.by_ensemble, found.error / found.inflation)
        reasons += convergence.effective_reasons(effective, found.log_density, self.least_effective)
        inputs, likelihood = self.anchors()
        finite = found.error[np.isfinite(found.error)]
        typical = float(np.median(finite)) if len(finite) else 1.0
        reasons += convergence.anchor_reasons(inputs, likelihood, typical)
        diagnostics = common_diagnostics(self, "importance", found, effective, apart) | {
            "proposal_betas": np.unique(self.betas),
            "selected": self.selecting,
            "log_inputs_error": inputs,
            "log_likelihood_error": likelihood,
        }
        return assembled(self.edges, found, self.problem.space, kept, diagnostics, reasons)

    KEPT: ClassVar[tuple[str, ...]] = (
        *("share", "betas", "edges", "pilot", "blocks", "representatives", "draws", "piloting", "lookahead"),
        *("selecting", "shares", "output_counts", "log_totals", "round", "latest"),
    )

    def snapshot(self) -> dict[str, Any]:
        """Everything the next batch depends on."""
        return {name: getattr(self, name) for name in self.KEPT} | {
            "generator": self.generator.get_state(),
            "evaluations": self.problem.evaluations,
            "model_seconds": self.problem.seconds,
        }

    def evaluated(self) -> list[Evaluated]:
        """Some inputs of the last batch, and those kept of every bin once there are bins."""
        latest = [] if self.latest is None else [self.latest]
        return latest if self.representatives is None else [*latest, self.representatives.evaluated()]

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Continue from a snapshot exactly as the interrupted run would have."""
        rest = dict(snapshot)
        self.generator.set_state(rest.pop("generator"))
        self.problem.evaluations = rest.pop("evaluations")
        self.problem.seconds = rest.pop("model_seconds")
        for name, value in rest.items():
            setattr(self, name, value)
        self._log_psi = None
