"""Multiple importance sampling from token-tempered ancestral samples of a causal language model.

Sequences are drawn token by token from q_beta(x) = prod_t p(x_t | x_<t)^beta psi_t(x_t) / S_t(beta) at
several betas, where psi is learned from earlier draws (see lookahead), and weighted by the balance heuristic
(Veach and Guibas 1995), w = 1 / (N sum_j a_j q_beta_j(x)). One forward pass gives q at every beta, samples
are independent, and sums of w count inputs absolutely. The last token is summed over instead of drawn
(Rao-Blackwell): all its values are histogrammed with the weight of the first length - 1 tokens. The paper
uses tempering alone; on its kind of problem this needs far fewer evaluations.

If psi is not accurate enough, the normalisers S of different sequences differ by many nats and few sequences
carry all the weight. Then the sequences of each beta go on with those of their continuations that a selection
keeps (see selection; sequential Monte Carlo, Del Moral et al. 2006), which stays unbiased. Their q is no
longer known, so each beta counts where its own outputs lie, and those whose bins are least certain get more
of the sequences (see beta_shares).
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import logsumexp

from assay.omniinput.sampling import convergence
from assay.omniinput.sampling.assembly import assembled, common_diagnostics, kept_inputs
from assay.omniinput.sampling.density_estimate import (
    LEAST_BLOCKS,
    RESAMPLES,
    DensityEstimate,
    bootstrap_error,
)
from assay.omniinput.sampling.distribution import OutputDistribution
from assay.omniinput.sampling.kernels.suffix import LanguageProblem
from assay.omniinput.sampling.lookahead import Lookahead
from assay.omniinput.sampling.plan import Budget, Plan
from assay.omniinput.sampling.problem import Evaluated
from assay.omniinput.sampling.representatives import Representatives
from assay.omniinput.sampling.samplers.beta_shares import log_trust, needed_shares
from assay.omniinput.sampling.samplers.last_token import LastToken
from assay.omniinput.sampling.samplers.particles import Draw, drawn_particles, effective_particles
from assay.omniinput.sampling.samplers.proposal_betas import PILOT_BETAS, proposal_betas
from assay.omniinput.sampling.samplers.selection import selected
from assay.omniinput.sampling.time_blocks import TimeBlocks
from assay.omniinput.sampling.vocabulary import NextTokens, Tilt

Array = NDArray[np.float64]

PILOT_SHARE = 0.1  # of the budget: half to choose the betas, half to learn the lookahead for them
BATCH, SELECTED_BATCH = 256, 1024
BATCHES = 40  # at least, in a whole run, so that its errors can be told and it ends on time
LEAST_GROUP = 16  # sequences per beta and batch; fewer are not selected from
ENOUGH_PARTICLES = (
    0.25  # effective share of the sequences of any beta in the pilot; below it selection stays on
)


@dataclass
class Importance:
    """A run that can stop after any batch: a pilot chooses the betas and learns the lookahead.

    After the pilot, each beta gets an equal share of the sequences. Per time block and bin, log sums of
    weights and of their squares are kept, so that memory does not grow with the number of samples. A batch
    costs length x values x proposals on top of the model.
    """

    problem: LanguageProblem
    plan: Plan
    budget: Budget
    generator: torch.Generator
    share: float = 1.0
    proposals: Array = field(default_factory=lambda: np.array(PILOT_BETAS))
    edges: Array | None = None
    pilot_sums: Array = field(default_factory=lambda: np.zeros((3, len(PILOT_BETAS))))
    blocks: TimeBlocks = field(default_factory=lambda: TimeBlocks({}, in_logs=True))
    representatives: Representatives | None = None
    draws: int = 0
    piloting: bool = True
    lookahead: Lookahead | None = None
    selecting: bool = False
    pilot_particles: list[float] = field(default_factory=list)  # effective shares, a pilot batch each
    shares: Array | None = None  # of the sequences of a batch, per beta; None: equal ones
    log_totals: Array | None = None  # ln of Z, added up over batches, per beta
    latest: Evaluated | None = None  # of the last batch, by which a checkpoint recognises its model
    _log_psi: torch.Tensor | None = None

    def begin(self) -> None:
        """Start with an empty lookahead."""
        space = self.problem.lm.space
        self.lookahead = Lookahead.none(len(self.proposals), space.sites - 1, space.choices)

    @property
    def rows(self) -> int:
        """Per batch."""
        return int(self._sizes().sum())

    def _sizes(self) -> NDArray[np.int64]:
        """Sequences of each beta in a batch: equally many, so that the shares a_j are exact, or by need."""
        count = len(self.proposals)
        shares = np.full(count, 1 / count) if self.shares is None else self.shares
        return np.maximum((shares * self._most_rows(self.selecting) + 1e-9).astype(np.int64), 1)

    def _most_rows(self, selecting: bool) -> int:
        most = min(SELECTED_BATCH if selecting else BATCH, self.problem.lm.most_rows)
        affordable = self.budget.affordable(self.problem.evaluations)
        return min(most, max(1, int(affordable * self.share) // BATCHES))

    @property
    def finished(self) -> bool:
        spent = self.budget.fraction(self.problem.evaluations) >= self.share
        return spent or not self.budget.allows(self.problem.evaluations + self.rows)

    def advance(self) -> None:
        """Draw one batch and learn from it; batches of the pilot serve only for learning."""
        assert self.lookahead is not None
        draw = self._draw()
        self.latest = draw.examples()
        # A batch is unbiased whatever was learned before it, so learning need not stop.
        if draw.following is not None:
            alive = torch.from_numpy(np.isfinite(draw.log_weights))
            self.lookahead.watch(draw.prefixes[alive], draw.following[alive], draw.own[alive])
            self._log_psi = None
        if self.piloting:
            self._pilot(draw)
        else:
            self._add(draw)

    def _pilot(self, draw: Draw) -> None:
        spent = self.budget.fraction(self.problem.evaluations) / (self.share * PILOT_SHARE)
        if self.edges is None:
            outputs = draw.outputs.reshape(len(self.proposals), -1)
            counts = np.full(len(self.proposals), float(outputs.shape[1]))
            self.pilot_sums += np.stack([counts, outputs.sum(axis=1), (outputs**2).sum(axis=1)])
            if spent >= 0.5:
                self._choose_proposals()
        self.piloting = spent < 1.0
        if not self.piloting and self.selecting:
            self.selecting = bool(np.mean(self.pilot_particles) < ENOUGH_PARTICLES)

    def _draw(self) -> Draw:
        """Prefixes at the row's beta, with their mixture weight over all betas (in units of the space)."""
        lm, sizes, count = self.problem.lm, self._sizes(), len(self.proposals)
        rows, betas, clock = int(sizes.sum()), torch.from_numpy(self.proposals), self.problem.clock
        own = torch.arange(count).repeat_interleave(torch.from_numpy(sizes))
        # The lookahead learns from normalisers at every beta, which cost as much as a small model.
        thorough = self.piloting or not self.selecting
        tokens = torch.empty(rows, lm.length - 1, dtype=torch.int64)
        log_likelihood = torch.zeros(rows, dtype=torch.float64)
        log_q = torch.zeros(rows, count, dtype=torch.float64)
        drawn_weight = torch.zeros(rows, dtype=torch.float64)  # at its own beta, as if it had been drawn
        log_weight = self._first_weights(sizes) if self.selecting else drawn_weight
        normalisers = torch.empty(rows, lm.length, count if thorough else 0, dtype=torch.float64)
        self.problem.evaluations += rows
        following, cache = lm.begin(rows, clock)
        for place in range(lm.length - 1):
            tilt = self._tilt(place, following)
            if thorough:
                normalisers[:, place] = following.log_normalisers(betas, tilt)
            weighed = following.weighed(betas, own, tilt)
            if self.selecting:
                found = selected(weighed, log_weight + weighed.log_normalisers, own.numpy(), self.generator)
                origin, token, log_weight = found.origin, found.tokens, found.log_weight
                tokens, log_likelihood, normalisers = (
                    tokens[origin],
                    log_likelihood[origin],
                    normalisers[origin],
                )
                weighed, drawn_weight = weighed.picked(origin), drawn_weight[origin]
                cache = lm.picked(cache, origin, tokens[:, :place], clock)
                log_weight -= weighed.ahead_alone(token)
            else:
                token = weighed.drawn(self.generator)
                log_q += weighed.tokens.of(token)[:, None] * betas
                log_q += weighed.ahead(token) - normalisers[:, place]
            if self.piloting:
                drawn_weight += weighed.log_normalisers - weighed.ahead_alone(token)
            log_likelihood += weighed.tokens.of(token)
            tokens[:, place] = token
            del weighed
            following, cache = lm.feed(token[:, None], cache, clock)
        if thorough:
            normalisers[:, -1] = following.log_normalisers(betas)
        if self.selecting:
            if self.piloting:
                self.pilot_particles.append(
                    drawn_particles(drawn_weight.numpy(), log_weight.numpy(), own.numpy())
                )
            log_weights = self._selected_weights(log_likelihood.numpy(), log_weight.numpy(), own.numpy())
        else:
            log_weights = np.log(count) - torch.logsumexp(log_q, dim=1).numpy()
        log_weights = log_weights - lm.space.log_size
        learned = normalisers[:, 1:] if thorough else None
        return Draw(tokens, -log_likelihood.numpy(), log_weights, following, learned, own)

    def _first_weights(self, sizes: NDArray[np.int64]) -> torch.Tensor:
        """Before the first token the sequences of a beta are one, which stands for as many as there are."""
        weights = np.full(int(sizes.sum()), -np.inf)
        weights[np.cumsum(sizes) - sizes] = np.log(sizes)
        return torch.from_numpy(weights)

    def _tilt(self, place: int, following: NextTokens) -> Tilt | None:
        """psi of every token at a position, written out for as long as the position takes."""
        assert self.lookahead is not None
        if not self.lookahead.batches:
            return None
        if self._log_psi is None:
            self._log_psi = self.lookahead.log_values().float()
        return Tilt(self._log_psi[:, place][:, self.lookahead.entry].to(following.logits.device))

    def _selected_weights(self, log_likelihood: Array, log_weight: Array, own: NDArray[np.int64]) -> Array:
        """ln weights of selected sequences: each beta counts where its own outputs lie.

        The mean of exp(log_weight) f(x) over the sequences of a beta estimates the sum of exp(-beta z) f(x)
        without bias; f is c_j(z) exp(beta z), and c adds up to one over the betas.
        """
        sizes = np.bincount(own)
        totals = np.logaddexp.reduceat(log_weight, np.cumsum(sizes) - sizes) - np.log(sizes)
        known = totals if self.log_totals is None else self.log_totals
        trust = log_trust(log_likelihood, self.proposals, known, sizes)[np.arange(len(own)), own]
        self.log_totals = totals if self.log_totals is None else np.logaddexp(known, totals)
        each = np.log(len(own) / sizes)[own]
        return np.asarray(each + log_weight + trust - self.proposals[own] * log_likelihood)

    def _choose_proposals(self) -> None:
        """Choose the bins, if none were given, and the betas that cover them."""
        betas, means, deviations = np.array(PILOT_BETAS), self._pilot_means(), self._pilot_deviations()
        self.edges = self.plan.edges
        if self.edges is None:
            low, high = means[betas == 2.0][0], (means + 2 * deviations)[betas == 0.0][0]
            self.edges = np.linspace(low, high, self.plan.bins + 1)
        centres = (self.edges[1:] + self.edges[:-1]) / 2
        self.proposals = proposal_betas(betas, means, deviations, centres[0], centres[-1])
        assert self.lookahead is not None
        self.lookahead = self.lookahead.moved(betas, self.proposals)
        self.selecting = self._most_rows(True) >= LEAST_GROUP * len(self.proposals)
        self.representatives = Representatives.empty(
            len(self.edges) - 1, self.plan.keep, self.problem.lm.length
        )

    def _pilot_deviations(self) -> Array:
        count, total, squares = self.pilot_sums
        return np.asarray(np.sqrt(np.maximum(squares / count - (total / count) ** 2, 0.0)))

    def _pilot_means(self) -> Array:
        """Mean output at every pilot beta, decreasing; the last token is assumed to cost as much as the
        others."""
        count, total, _ = self.pilot_sums
        length = self.problem.lm.length
        return np.asarray(np.minimum.accumulate(total / count * length / (length - 1)))

    def _add(self, draw: Draw) -> None:
        """Add all last tokens to the histogram; offer every complete sequence as a representative input."""
        assert self.edges is not None
        last = LastToken(draw, self.edges)
        counts = last.counts()
        with np.errstate(divide="ignore"):
            contributions = draw.log_weights[:, None] + np.log(counts)
        together = logsumexp(contributions, axis=0)
        # Selected sequences are not independent of each other; batches are.
        squares = 2 * together if self.selecting else logsumexp(2 * contributions, axis=0)
        self.blocks.add(
            {
                "bins": together,
                "squares": squares,
                "batches": np.zeros(()),
                "inputs": np.asarray(logsumexp(draw.log_weights + np.log(draw.completions))),
                "likelihood": np.asarray(logsumexp(draw.log_weights - draw.outputs)),
                "rows": np.asarray(np.log(len(counts))),
            }
        )
        self.draws += len(counts)
        if self.selecting:
            self._share_out()
        self._offer(draw, last, counts)

    def _share_out(self) -> None:
        """Betas whose bins are least certain get more of the next batch."""
        assert self.edges is not None
        assert self.log_totals is not None
        logs = self.blocks.whole()["bins"]
        if len(logs) >= LEAST_BLOCKS:
            centres = (self.edges[1:] + self.edges[:-1]) / 2
            self.shares = needed_shares(logs, centres, self.proposals, self.log_totals, self._sizes())

    def _offer(self, draw: Draw, last: LastToken, counts: Array) -> None:
        assert self.representatives is not None
        generator = np.random.default_rng(int(torch.randint(2**62, (), generator=self.generator)))
        rows, bins, keys = self.representatives.winners(draw.log_weights, counts, generator)
        tokens = last.chosen(rows, bins, generator)
        chosen = torch.from_numpy(rows)
        sites = torch.cat([draw.prefixes[chosen], tokens[:, None]], dim=1)
        outputs = draw.outputs[rows] - draw.last.picked(chosen).of(tokens).numpy()
        self.representatives.offer(sites, outputs, draw.log_weights[rows], keys, bins)

    def estimate(self) -> DensityEstimate:
        """Log density with its error over blocks of draws; odd and even blocks are the two ensembles."""
        blocks = self.blocks.whole()
        logs, rows = blocks["bins"], blocks["rows"]

        def density(log_times: Array) -> Array:
            return np.asarray(logsumexp(logs + log_times[:, None], axis=0) - logsumexp(rows + log_times))

        count = len(rows)
        every = np.zeros(count)
        with np.errstate(divide="ignore"):
            alone = [density(np.log(np.arange(count) % 2 == half)) for half in (0, 1)] if count > 1 else []
            generator = np.random.default_rng(self.plan.seed)
            drawn = generator.multinomial(count, np.full(count, 1 / count), size=RESAMPLES)
            enough = RESAMPLES if count >= LEAST_BLOCKS else 0
            densities = [density(np.log(times)) for times in drawn[:enough]]
            resamples = np.array(densities).reshape(-1, logs.shape[1])
        whole = density(every)
        return DensityEstimate(
            np.where(np.isfinite(whole), whole, np.nan),
            bootstrap_error(resamples, np.isfinite(logs), count),
            resamples,
            np.array([np.where(np.isfinite(one), one, np.nan) for one in alone]).reshape(-1, len(whole)),
            self.proposals,
            count,
            0,
            float(self.draws),
        )

    def effective(self) -> Array:
        """Effective sample size of every bin."""
        return effective_particles(self.blocks.whole(), self.selecting)

    def mean_at_one(self) -> float:
        """The mean output of the model's own samples, from the pilot."""
        return float(np.interp(1.0, PILOT_BETAS, self._pilot_means()))

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
        reasons += convergence.effective_reasons(
            effective, found.log_density, convergence.LEAST_IMPORTANCE_EFFECTIVE
        )
        inputs, likelihood = self.anchors()
        finite = found.error[np.isfinite(found.error)]
        typical = float(np.median(finite)) if len(finite) else 1.0
        reasons += convergence.anchor_reasons(inputs, likelihood, typical)
        diagnostics = common_diagnostics(self, "importance", found, effective, apart) | {
            "proposal_betas": self.proposals,
            "log_inputs_error": inputs,
            "log_likelihood_error": likelihood,
        }
        return assembled(self.edges, found, self.problem.space, kept, diagnostics, reasons)

    def snapshot(self) -> dict[str, Any]:
        """Everything the next batch depends on."""
        names = ("proposals", "edges", "pilot_sums", "blocks", "representatives", "draws", "piloting")
        more = ("share", "lookahead", "selecting", "pilot_particles", "shares", "log_totals", "latest")
        return {name: getattr(self, name) for name in (*names, *more)} | {
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
