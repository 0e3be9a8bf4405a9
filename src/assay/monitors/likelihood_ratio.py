"""LikelihoodRatio: several monitors as one, by what each sees of faults."""

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Self

import torch
from torch import Tensor

from assay.errors import InputError
from assay.monitors.combination import _Combination
from assay.monitors.parts.formula import Array, evaluated
from assay.trace import Trace

ALONE = 4.0
"""Mean evidence of a member that alone sees a fault."""

TAUGHT_SHARE = 0.5
"""Weight of what was taught; the rest stays with members that see a fault alone."""

CHANCE = 0.05
"""Share of clean rows that a member on its own catches where it counts as seeing a fault."""

LEAST = CHANCE / 10
"""What a member that catches no more than chance counts as catching: nobody is left out for good."""


class LikelihoodRatio(_Combination):
    """s(x) = ln sum_k w_k prod_m exp((1 - 1 / u_km) e_m) / u_km, a likelihood ratio.

    The evidence e_m = -ln p_m of member m is exponentially distributed with mean 1 on clean inputs, where p_m
    is uniform. Alternative k says that it has the mean u_km instead; 1 where the member sees nothing. The
    ratio of the densities, mixed by the weights w_k, is the best score there is if members are independent
    and the alternatives come true so often (Neyman and Pearson 1933). Its mean over clean inputs is then 1,
    so that exp(-s) is a p-value (Markov's inequality); alternatives in which one member sees the fault alone
    need no independence.

    After `fit`, the alternatives are these: one for each member, of mean evidence 4, all of one weight.
    `teach` adds others from examples. Merging fits leaves what was taught behind: teach again.
    """

    metadata = replace(
        _Combination.metadata,
        score="ln of the likelihood ratio of what members see of faults",
        cost="N * len(members) * K",
        paper="Neyman, Pearson",
        year=1933,
    )

    alternatives_: Tensor
    """(K, members): the mean evidence u."""
    shares_: Tensor
    """(K,): the weights w, which add up to 1."""

    def teach(self, examples: Iterable[Trace]) -> Self:
        """Learn from Traces of faulty inputs, one for each kind of fault, what members see of them.

        Half of the weight goes to these kinds, equally: each is an alternative, of the mean evidence of every
        member. The other half stays with members that see a fault alone, by the share of rows that each
        catches beyond the 5 % of clean ones. Rows with evidence that is not finite do not count.
        """
        self._check_fitted()
        evidence = [found for trace in examples if (found := _finite_rows(self.evidence(trace))).numel()]
        if not evidence:
            raise InputError("expected Traces of faulty inputs to learn from, got none with finite scores")
        means = torch.stack([found.mean(dim=1) for found in evidence]).clamp(min=1.0)
        caught = torch.stack([(found > -math.log(CHANCE)).double().mean(dim=1) for found in evidence])
        alone = (caught.mean(dim=0) - CHANCE).clamp(min=LEAST)
        self.alternatives_ = torch.cat([_each_alone(len(alone)), means])
        self.shares_ = torch.cat(
            [
                (1 - TAUGHT_SHARE) * alone / alone.sum(),
                torch.full((len(means),), TAUGHT_SHARE / len(means), dtype=torch.float64),
            ]
        )
        return self

    def combined(self, evidence: Tensor) -> Tensor:
        return evaluated(_log_ratio, evidence, self.alternatives_, self.shares_)

    def _weigh(self, evidence: Tensor) -> None:
        members = len(evidence)
        self.alternatives_ = _each_alone(members)
        self.shares_ = torch.full((members,), 1 / members, dtype=torch.float64)


def _log_ratio(xp: Any, evidence: Array, alternatives: Array, shares: Array) -> Array:
    """(N,): the logarithm of the mixed ratio."""
    offsets = xp.log(shares) - xp.log(alternatives).sum(1)
    ratios = (1 - 1 / alternatives) @ evidence + offsets[:, None]
    largest = xp.amax(ratios, 0)
    return largest + xp.log(xp.exp(ratios - largest).sum(0))


def _each_alone(members: int) -> Tensor:
    return 1 + (ALONE - 1) * torch.eye(members, dtype=torch.float64)


def _finite_rows(evidence: Tensor) -> Tensor:
    return evidence[:, torch.isfinite(evidence).all(dim=0)]
