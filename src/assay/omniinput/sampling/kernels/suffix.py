"""Suffix proposal for a causal language model: everything from a position on is redrawn from the model.

The redrawn tokens come from the model's own conditionals at the row's inverse temperature, so almost all of
the target cancels: ln acceptance = sum over redrawn t of ln S_t(x') - ln S_t(x), with S_t(beta) the sum of
p(v | x_<t)^beta over tokens v. It is always accepted at beta 0 and 1. The paper has no such move.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.omniinput.sampling.kernels.chain import Info, State, Target, chosen
from assay.omniinput.sampling.language_model import CausalLM, drawn_tokens, log_normalisers
from assay.omniinput.sampling.problem import Evaluation, Problem


@dataclass
class LanguageProblem(Problem):
    """Negative log-likelihood of a language model; extras["normalisers"] is ln S_t(beta), (R, length, K).

    One evaluation is one whole sequence, scored or drawn: `length` tokens through a model with cache.
    """

    lm: CausalLM = field(kw_only=True)
    betas: Tensor = field(default_factory=lambda: torch.zeros(1, dtype=torch.float64))

    def prepare(self, betas: NDArray[np.float64]) -> bool:
        self.betas = torch.from_numpy(betas)
        return True

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Sequences drawn from the model at the first rung's beta; uniform at zero."""
        sites = self.space.draw(count, generator)
        beta = float(self.betas[0])
        if beta == 0.0:
            return sites
        betas = torch.full((count,), beta, dtype=torch.float64)
        return self.redrawn(sites, torch.zeros(sites.shape, dtype=torch.float64), 0, betas, generator)[0]

    def __call__(self, sites: Tensor) -> Evaluation:
        with self.timed(len(sites)):
            log_probs = self.lm.log_probabilities(sites)
        token_log_probs = log_probs.gather(2, sites[:, :, None])[:, :, 0].double()
        extras = {"token_log_probs": token_log_probs, "normalisers": log_normalisers(log_probs, self.betas)}
        return Evaluation(-token_log_probs.sum(dim=1), extras)

    def redrawn(
        self, sites: Tensor, token_log_probs: Tensor, cut: int, betas: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens and their log-probabilities, drawn from `cut` on at each row's beta; ln S_t(beta) of those.

        The prefix goes through the model in one call, each new token in one more.
        """
        new, scored = sites.clone(), []
        with self.timed(len(sites)):
            log_probs, cache = self.lm.begin(len(sites))
        if cut > 0:
            with self.timed(0):
                prefix, cache = self.lm.feed(sites[:, :cut], cache)
            log_probs = prefix[:, -1]
        for place in range(cut, self.lm.length):
            new[:, place : place + 1] = token = drawn_tokens(log_probs, betas, generator)
            scored.append(log_probs)
            if place + 1 < self.lm.length:
                with self.timed(0):
                    following, cache = self.lm.feed(token, cache)
                log_probs = following[:, 0]
        drawn = torch.stack(scored, dim=1)
        fresh = drawn.gather(2, new[:, cut:, None])[:, :, 0].double()
        return new, torch.cat([token_log_probs[:, :cut], fresh], dim=1), log_normalisers(drawn, self.betas)


@dataclass(frozen=True)
class Suffix:
    """One position is drawn for all rows, so that one prefix call and equal steps serve the whole batch."""

    gradients: bool = False

    def step(
        self, state: State, target: Target, problem: Problem, generator: torch.Generator, groups: int = 1
    ) -> tuple[State, Info]:
        assert isinstance(problem, LanguageProblem)
        rows, length = state.sites.shape
        cut = int(torch.randint(length, (), generator=generator))
        row_betas = problem.betas.repeat(groups)
        new, token_log_probs, fresh = problem.redrawn(
            state.sites, state.extras["token_log_probs"], cut, row_betas, generator
        )
        old = state.extras["normalisers"]
        normalisers = torch.cat([old[:, :cut], fresh], dim=1)
        rung = torch.arange(rows) % len(problem.betas)
        gain = (normalisers - old)[torch.arange(rows), :, rung].sum(dim=1)
        probability = gain.clamp(max=0.0).exp()
        accepted = torch.rand(rows, dtype=torch.float64, generator=generator) < probability
        extras = {"token_log_probs": token_log_probs, "normalisers": normalisers}
        evaluation = Evaluation(-token_log_probs.sum(dim=1), extras)
        return chosen(accepted, new, evaluation, state), Info(accepted, probability)
