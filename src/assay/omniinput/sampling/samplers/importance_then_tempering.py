"""ImportanceThenTempering: for a causal language model, tempering where importance sampling is weak."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from assay.omniinput.sampling.convergence import LEAST_EFFECTIVE, LEAST_IMPORTANCE_EFFECTIVE
from assay.omniinput.sampling.density_estimate import Anchor
from assay.omniinput.sampling.kernels.chain import Kernel
from assay.omniinput.sampling.kernels.suffix import LanguageProblem
from assay.omniinput.sampling.plan import Budget, Plan
from assay.omniinput.sampling.problem import Evaluated
from assay.omniinput.sampling.samplers.importance import Importance
from assay.omniinput.sampling.samplers.tempering import Tempering

FIRST_SHARE = 0.4  # of the budget, before the effective sample size of every bin is looked at

LEAST_TEMPERING = 5_000  # evaluations; with fewer, a ladder does not even settle
EVALUATIONS_PER_EFFECTIVE = 5_000  # of tempering in a rare bin: 20,000 on the Markov model and stories260K


@dataclass
class ImportanceThenTempering:
    """If every bin has enough effective samples after two fifths of the budget, importance sampling goes on.

    Otherwise, if tempering with suffix proposals can be expected to do better, the rest goes to it: its
    samples are correlated but reach bins that ancestral samples hardly ever hit.
    """

    problem: LanguageProblem
    kernels: list[Kernel]
    plan: Plan
    budget: Budget
    generator: torch.Generator
    importance: Importance = field(init=False)
    tempering: Tempering | None = None

    def __post_init__(self) -> None:
        self.importance = Importance(self.problem, self.plan, self.budget, self.generator, share=FIRST_SHARE)

    def begin(self) -> None:
        self.importance.begin()

    @property
    def finished(self) -> bool:
        if self.tempering is not None:
            return self.tempering.finished
        return self.importance.finished and self.importance.share == 1.0

    def advance(self) -> None:
        if self.tempering is not None:
            self.tempering.advance()
        elif not self.importance.finished:
            self.importance.advance()
        elif len(self._weak_bins()):
            self.tempering = self._tempering()
            self.tempering.begin()
        else:
            self.importance.share = 1.0

    def _weak_bins(self) -> NDArray[np.int64]:
        """Those with too few effective samples at the end of the budget, and fewer than by tempering.

        None where tempering could not give enough to any bin in what is left.
        """
        left = self.problem.evaluations * (1 - FIRST_SHARE) / FIRST_SHARE
        by_tempering = left / EVALUATIONS_PER_EFFECTIVE
        if self.importance.piloting or left < LEAST_TEMPERING or by_tempering < LEAST_EFFECTIVE:
            return np.empty(0, dtype=np.int64)
        projected = self.importance.effective() / FIRST_SHARE
        return np.flatnonzero(projected < min(LEAST_IMPORTANCE_EFFECTIVE, by_tempering))

    def _tempering(self) -> Tempering:
        """Tempering that adapts its ladder in a share of what is left.

        If only outputs below those of the model's own samples are weak, the ladder starts at beta = 1, where
        suffix proposals are always accepted and the sum of all likelihoods is known.
        """
        run = Tempering(self.problem, self.kernels, self.plan, self.budget, self.generator)
        weak = self._weak_bins()
        edges = self.importance.edges
        if edges is not None and len(weak) and edges[weak[-1] + 1] < self.importance.mean_at_one():
            run.anchor = Anchor(1.0, self.problem.lm.log_total_likelihood - self.problem.space.log_size)
        run.spent_before = self.budget.fraction(self.problem.evaluations)
        return run

    def snapshot(self) -> dict[str, Any]:
        tempering = None if self.tempering is None else self.tempering.snapshot()
        return {"importance": self.importance.snapshot(), "tempering": tempering}

    def evaluated(self) -> list[Evaluated]:
        return self.importance.evaluated() + ([] if self.tempering is None else self.tempering.evaluated())

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.importance.restore(snapshot["importance"])
        if snapshot["tempering"] is not None:
            self.tempering = Tempering(self.problem, self.kernels, self.plan, self.budget, self.generator)
            self.tempering.restore(snapshot["tempering"])
