"""Suffix proposal for a causal language model: everything from a position on is redrawn from the model.

The redrawn tokens come from the model's own conditionals at the row's inverse temperature, so almost all of
the target cancels: ln acceptance = sum over redrawn t of ln S_t(x') - ln S_t(x), with S_t(beta) the sum of
p(v | x_<t)^beta over tokens v. It is always accepted at beta 0 and 1. The paper has no such move.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.omniinput.sampling.kernels.chain import Info, State, Target, chosen
from assay.omniinput.sampling.language_model import CausalLM
from assay.omniinput.sampling.problem import Evaluation, Problem


@dataclass
class LanguageProblem(Problem):
    """Negative log-likelihood of a language model; extras["normalisers"] is ln S_t(beta), (R, length, K).

    One evaluation is one whole sequence, scored or drawn: `length` tokens through a model with cache.
    """

    lm: CausalLM = field(kw_only=True)
    betas: Tensor = field(default_factory=lambda: torch.zeros(1, dtype=torch.float64))

    def clock(self) -> AbstractContextManager[None]:
        """Entered around calls of the model, whose time is counted; that of sums over tokens is not."""
        return self.timed(0)

    def prepare(self, betas: NDArray[np.float64]) -> bool:
        self.betas = torch.from_numpy(betas)
        return True

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Sequences drawn from the model at the first rung's beta; uniform at zero."""
        sites = self.space.draw(count, generator)
        beta = float(self.betas[0])
        if beta == 0.0:
            return sites
        own = torch.zeros(count, dtype=torch.int64)
        return self.redrawn(sites, torch.zeros(sites.shape, dtype=torch.float64), 0, own, generator)[0]

    def __call__(self, sites: Tensor) -> Evaluation:
        self.evaluations += len(sites)
        token_log_probs, normalisers = self.lm.scored(sites, self.betas, self.clock)
        extras = {"token_log_probs": token_log_probs, "normalisers": normalisers}
        return Evaluation(-token_log_probs.sum(dim=1), extras)

    def redrawn(
        self, sites: Tensor, token_log_probs: Tensor, cut: int, own: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens and their log-probabilities, drawn from `cut` on at the beta with number `own` of each row;
        ln S_t(beta) of the new positions at every beta.

        The prefix goes through the model in one call, each new token in one more.
        """
        new, token_log_probs = sites.clone(), token_log_probs.clone()
        normalisers = torch.empty(len(sites), self.lm.length - cut, len(self.betas), dtype=torch.float64)
        for part in torch.split(torch.arange(len(sites)), self.lm.most_rows):
            found = self._drawn_suffix(new[part], cut, own[part], generator)
            new[part, cut:], token_log_probs[part, cut:], normalisers[part] = found
        return new, token_log_probs, normalisers

    def _drawn_suffix(
        self, sites: Tensor, cut: int, own: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        tokens, log_probs, normalisers = [], [], []
        self.evaluations += len(sites)
        following, cache = self.lm.begin(len(sites), self.clock)
        if cut > 0:
            following, cache = self.lm.feed(sites[:, :cut], cache, self.clock)
        for place in range(cut, self.lm.length):
            weighed = following.weighed(self.betas, own)
            token = weighed.drawn(generator)
            tokens.append(token)
            log_probs.append(following.of(token))
            normalisers.append(following.log_normalisers(self.betas))
            if place + 1 < self.lm.length:
                following, cache = self.lm.feed(token[:, None], cache, self.clock)
        return torch.stack(tokens, 1), torch.stack(log_probs, 1), torch.stack(normalisers, 1)


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
        rung = torch.arange(rows) % len(problem.betas)
        new, token_log_probs, fresh = problem.redrawn(
            state.sites, state.extras["token_log_probs"], cut, rung, generator
        )
        old = state.extras["normalisers"]
        normalisers = torch.cat([old[:, :cut], fresh], dim=1)
        gain = (normalisers - old)[torch.arange(rows), :, rung].sum(dim=1)
        probability = gain.clamp(max=0.0).exp()
        accepted = torch.rand(rows, dtype=torch.float64, generator=generator) < probability
        extras = {"token_log_probs": token_log_probs, "normalisers": normalisers}
        evaluation = Evaluation(-token_log_probs.sum(dim=1), extras)
        return chosen(accepted, new, evaluation, state), Info(accepted, probability)
