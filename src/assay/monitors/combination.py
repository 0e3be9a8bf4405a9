"""Several monitors as one, on the common scale of p-values: AnyOf, AllOf, Standardised."""

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, reduce
from operator import or_
from typing import Any, Self

import torch
from scipy.optimize import brentq
from torch import Tensor

from assay.errors import InputError
from assay.monitors.metadata import Metadata, Needs
from assay.monitors.monitor import Monitor
from assay.monitors.parts.gathered import Gathered
from assay.monitors.parts.joint_fit import collect_together
from assay.monitors.parts.reference_scores import evidence_of, fitted_tail, no_tail
from assay.monitors.parts.reservoir import Reservoir, checked_limit
from assay.monitors.parts.row_keys import RowKeys
from assay.monitors.parts.row_sample import TraceSample
from assay.monitors.parts.upper_gamma import log_upper_gamma
from assay.network.graph import under_tracer
from assay.trace import Trace

COMBINE = ("fisher", "brown", "cauchy", "harmonic", "root", "mean")
WEIGHED = ("harmonic", "root")
"""Combinations whose members may have weights."""

_LARGEST = 700.0  # evidence whose exponential is finite


class _Combination(Monitor):
    """s(x) = -ln p(x), p a p-value made of the members' conformal p-values.

    Member m gives p_m = (1 + #{reference scores >= s_m(x)}) / (n + 1), which for an in-distribution input is
    at most a with probability at most a (Vovk et al. 2005). Reference rows are rows no member was fitted on:
    a random share `held_out` of the data given to `fit`, at most `limit` of them. Members are fitted in
    place, in one pass over a stream. With prefit=True they are already fitted and all rows are reference.

    Beyond the largest reference score an extreme-value tail goes on (`reference_scores.py`), so that far
    scores do not tie; with tail=False no p-value is below 1 / (n + 1). A member's score that is not a number
    makes the combination's so, which is an alarm. `names` are those of the members, by default their classes.
    """

    metadata = Metadata(
        cost="N * len(members)",
        state="8 * M * len(members)",
        paper="Vovk et al.",
        year=2005,
    )

    def __init__(
        self,
        members: Sequence[Monitor],
        *,
        names: Sequence[str] = (),
        tail: bool = True,
        limit: int | None = 1000,
        held_out: float = 0.2,
        prefit: bool = False,
        seed: int = 0,
    ) -> None:
        if not members or not all(isinstance(member, Monitor) for member in members):
            raise InputError(
                f"expected a list of at least one monitor, got {members!r}; pass for example [Energy()]"
            )
        if len({id(member) for member in members}) < len(members):
            raise InputError("expected distinct members, got the same object twice; build it twice")
        if not 0 < held_out < 1:
            raise InputError(f"expected held_out between 0 and 1, got {held_out}")
        self.members = list(members)
        self.names = _checked_names(names, self.members)
        self.tail = tail
        self.limit = checked_limit(limit)
        self.held_out = held_out
        self.prefit = prefit
        self.seed = seed

    reference_: Tensor
    """(members, n), each member's sorted."""
    tails_: Tensor

    @property
    def member_names(self) -> tuple[str, ...]:
        return tuple(self.names)

    @property
    def layers(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(layer for member in self.members for layer in member.layers))

    @property
    def needs(self) -> Needs:
        together = reduce(or_, (member.needs for member in self.members))
        return replace(together, inputs_in_fit=together.inputs)  # fitting scores the reference rows

    @property
    def obstacle(self) -> str:
        return next((member.obstacle for member in self.members if member.obstacle), "")

    @property
    def nbytes(self) -> int:
        return super().nbytes + sum(member.nbytes for member in self.members)

    def p_values(self, trace: Trace) -> Tensor:
        """The members' own p-values, (members, N)."""
        return torch.exp(-self.evidence(trace))

    def evidence(self, trace: Trace) -> Tensor:
        """-ln of the members' own p-values, (members, N): which of them objects, and how much."""
        self._check_fitted()
        scores = torch.stack([member.score(trace) for member in self.members])
        return evidence_of(scores, self.reference_, self.tails_)

    def score_and_evidence(self, trace: Trace) -> tuple[Tensor, Tensor | None]:
        found = self.evidence(trace)
        return self.combined(found), found.T

    @property
    def depth(self) -> int:
        """How many combinations lie within each other: each holds out rows by keys of its own."""
        return 1 + max(getattr(member, "depth", 0) for member in self.members)

    @property
    def _parts(self) -> Sequence[Monitor]:
        return () if self.prefit else self.members

    def settings(self) -> tuple[Any, ...]:
        fitted = [member.fingerprint for member in self.members] if self.prefit else []
        return *super().settings(), *fitted

    def _gather(self, traces: Iterator[Trace]) -> dict[str, Gathered]:
        if self.prefit:
            return {"scored": self._streamed_scores(traces)}
        held = TraceSample(self.limit)
        collect_together(self.members, self._without(held, traces))
        return {"held": held}

    def _describe(self, held: TraceSample | None = None, scored: Reservoir | None = None) -> None:
        if held is not None:
            scores = self._held_out_scores(held)
        if scored is not None:
            scores = list(scored.columns().values())
        for member, found in zip(self.members, scores, strict=True):
            if not torch.isfinite(found).all():
                raise InputError(
                    f"expected finite scores of {member!r} on normal rows, got NaN or infinity; leave it out"
                )
        together = torch.stack(scores)
        self.reference_ = together.sort(dim=1).values
        self.tails_ = self._fitted_tails()
        self._weigh(evidence_of(together, self.reference_, self.tails_))
        self.remedy_ = "; ".join(member.remedy_ for member in self.members if member.remedy_)

    def _fitted_tails(self) -> Tensor:
        return torch.stack([(fitted_tail if self.tail else no_tail)(found) for found in self.reference_])

    def _score(self, trace: Trace) -> Tensor:
        return self.combined(self.evidence(trace))

    @abstractmethod
    def combined(self, evidence: Tensor) -> Tensor:
        """The scores: -ln of the combined p-value, from the members' evidence (members, N)."""

    def _weigh(self, evidence: Tensor) -> None:
        """Learn from the evidence (members, n) of the reference rows how members depend on each other."""

    def _streamed_scores(self, traces: Iterator[Trace]) -> Reservoir:
        scored, keys = Reservoir(self.limit), RowKeys(self.seed)
        for trace in traces:
            scores = {number: member.score(trace) for number, member in enumerate(self.members)}
            scored.add(keys.next(trace.logits), scores)
        return scored

    def _held_out_scores(self, held: TraceSample) -> list[Tensor]:
        reference = held.trace()
        if not len(reference):
            raise InputError(
                f"expected enough rows to hold out a share of {self.held_out}, got too few; "
                "fit on more data, or fit the members first and pass prefit=True"
            )
        return [member.score(reference) for member in self.members]

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        # Files from before there were tails, and from when references came one by one.
        parameters = {"tail": False} | dict(state["parameters"])
        monitor = super().from_state({**state, "parameters": parameters})
        if isinstance(one_by_one := state["fitted"].get("reference_"), list):
            monitor.reference_ = torch.stack(one_by_one)
            monitor.tails_ = monitor._fitted_tails()
        return monitor

    def _forget(self) -> None:
        super()._forget()
        for member in () if self.prefit else self.members:
            member._forget()

    def _without(self, held: TraceSample, traces: Iterator[Trace]) -> Iterator[Trace]:
        """The rows to fit on; the others go to `held`."""
        row_keys = RowKeys(self.seed, self.depth)
        for trace in traces:
            keys = row_keys.next(trace.logits)
            out = keys < self.held_out
            held.add(self._needed_of(trace[out]), keys[out])
            yield trace[~out]


class AnyOf(_Combination):
    """p = M min_m p_m over M members: suspicious where at least one objects.

    The factor M (Bonferroni) keeps p a p-value however members depend on each other. p may exceed 1 and
    the score fall below 0: no evidence, and still in order.
    """

    metadata = replace(_Combination.metadata, score="-ln(smallest p-value × number of members)")

    def combined(self, evidence: Tensor) -> Tensor:
        return evidence.amax(dim=0) - math.log(len(evidence))


class AllOf(_Combination):
    """p = max_m p_m: suspicious only where every member objects. A p-value under any dependence."""

    metadata = replace(_Combination.metadata, score="-ln(largest p-value)")

    def combined(self, evidence: Tensor) -> Tensor:
        return evidence.amin(dim=0)


class Standardised(_Combination):
    """One monitor on the scale of p-values, or several weighed together. One member: p = p_1 in all.

    `combine` is one of:

    - "fisher": p = P(chi2 with 2M degrees > -2 sum_m ln p_m) (Fisher 1932), a p-value if members are
      independent. Members that agree make it too small: let Guard calibrate the threshold.
    - "brown": the same sum against a scaled chi-square with the variance that the sum has over the reference
      rows (Brown 1975; from data: Poole et al. 2016). It corrects for members that agree. The order is
      Fisher's, so a Guard calibrated on either raises the same alarms.
    - "cauchy": the mean of cot(pi p_m), which is Cauchy distributed for independent members, and nearly so in
      the tail for others (Liu and Xie 2020). The largest p-value counts as n / (n + 1), not 1.
    - "harmonic": the harmonic mean of the p_m (Wilson 2019), times the factor that makes it a p-value under
      any dependence (Vovk and Wang 2020, Proposition 9). With `weights`, w_m once they add up to 1, it is
      1 / sum_m (w_m / p_m), at least the plain one over M max_m w_m: the factor grows by that much.
    - "root": p = 4 / (sum_m w_m / sqrt(p_m))^2, halfway from Fisher's sum (the geometric mean) to the
      harmonic mean: it hears one member that is sure, and adds up what several suspect. A p-value under any
      dependence and any weights: where p <= a has probability b, the mean of sum_m w_m / sqrt(p_m) is at
      least 2 / sqrt(a) there, and at most that of the smallest p_m there are, 2 / sqrt(b) (Vovk and Wang
      2020, r = -1/2).
    - "mean": p = 2 mean_m p_m, a p-value under any dependence (Vovk and Wang 2020).
    """

    metadata = replace(
        _Combination.metadata,
        score="-ln(p), p of all members' p-values together",
        paper="Fisher",
        year=1932,
    )

    variance_: float
    """Of the sum of evidence over the reference rows; the number of members if they are independent."""

    def __init__(
        self,
        members: Sequence[Monitor] | Monitor,
        *,
        combine: str = "fisher",
        weights: Sequence[float] = (),
        limit: int | None = 1000,
        names: Sequence[str] = (),
        tail: bool = True,
        held_out: float = 0.2,
        prefit: bool = False,
        seed: int = 0,
    ) -> None:
        if combine not in COMBINE:
            raise InputError(f"expected combine to be one of {list(COMBINE)}, got {combine!r}")
        super().__init__(
            [members] if isinstance(members, Monitor) else members,
            names=names,
            tail=tail,
            limit=limit,
            held_out=held_out,
            prefit=prefit,
            seed=seed,
        )
        self.combine = combine
        self.weights = _checked_weights(weights, combine, len(self.members))
        shares = torch.tensor(self.weights or [1.0] * len(self.members), dtype=torch.float64)
        self._log_shares = (shares / shares.sum()).log()[:, None]

    def combined(self, evidence: Tensor) -> Tensor:
        return {
            "fisher": _fisher,
            "brown": self._brown,
            "cauchy": self._cauchy,
            "harmonic": self._harmonic,
            "root": self._root,
            "mean": _mean,
        }[self.combine](evidence)

    def _weigh(self, evidence: Tensor) -> None:
        # Evidence of a p-value has variance 1; only how members go together is read from the rows.
        together = torch.cov(evidence, correction=0).reshape(len(evidence), -1)
        self.variance_ = len(evidence) + float(together.sum() - together.diagonal().sum())

    def _brown(self, evidence: Tensor) -> Tensor:
        # The sum has mean M and variance v: as much as v / M times a Gamma(M^2 / v) variable.
        count = len(evidence)
        variance = max(self.variance_, 0.1 * count)  # members that nearly cancel out
        return -log_upper_gamma(count**2 / variance, evidence.sum(dim=0) * count / variance)

    def _harmonic(self, evidence: Tensor) -> Tensor:
        factor = _harmonic_factor(len(evidence)) * len(evidence) * math.exp(self._log_shares.max())
        return (evidence + self._log_shares).logsumexp(dim=0) - math.log(factor)

    def _root(self, evidence: Tensor) -> Tensor:
        return 2 * (evidence / 2 + self._log_shares).logsumexp(dim=0) - math.log(4)

    def _cauchy(self, evidence: Tensor) -> Tensor:
        least = math.log1p(1 / self.reference_.shape[1])
        angles = math.pi * torch.exp(-evidence.clamp(min=least, max=_LARGEST))
        mean = _cotangent(angles).mean(dim=0)
        return math.log(math.pi) - _angle(mean).log()


def _cotangent(angles: Tensor) -> Tensor:
    """For angles in (0, pi). Runtimes of ONNX have the tangent in single precision only: there the smallest
    angles take the first terms of the series."""
    if not under_tracer():
        return 1 / torch.tan(angles)
    return torch.where(angles < 1e-3, 1 / angles - angles / 3, 1 / torch.tan(angles.float()).double())


def _angle(cotangents: Tensor) -> Tensor:
    """The angle in (0, pi), to full relative precision near 0."""
    if not under_tracer():
        return torch.atan2(torch.ones_like(cotangents), cotangents)
    wide = math.pi / 2 - torch.atan(cotangents.clamp(max=1e3).float()).double()
    small = 1 / cotangents.clamp(min=1e3)
    return torch.where(cotangents < 1e3, wide, small - small**3 / 3)


def _fisher(evidence: Tensor) -> Tensor:
    """-ln Q(M, h) of the sum h: Q(M, h) = exp(-h) sum_{k < M} h^k / k!, for whole M."""
    total = evidence.sum(dim=0)
    terms = [k * total.clamp(min=1e-300).log() - math.lgamma(k + 1) for k in range(len(evidence))]
    return total - torch.stack(terms).logsumexp(dim=0)


def _mean(evidence: Tensor) -> Tensor:
    count = len(evidence)
    return math.log(count) - (-evidence).logsumexp(dim=0) - math.log(min(count, 2))


@cache
def _harmonic_factor(count: int) -> float:
    """The least factor that makes the harmonic mean of `count` p-values a p-value, however they depend:
    (y + K)^2 / ((y + 1) K), with y > 0 such that y^2 = K ((y + 1) ln(y + 1) - y); 1 and 2 for K = 1 and 2."""
    if count < 3:
        return float(count)

    def excess(y: float) -> float:
        return y**2 - count * ((y + 1) * math.log1p(y) - y)

    y = brentq(excess, 1e-3, 10.0 * count**2)
    return float((y + count) ** 2 / ((y + 1) * count))


def _checked_weights(weights: Sequence[float], combine: str, members: int) -> list[float]:
    """The weights as numbers; empty where all weigh the same."""
    values = [float(weight) for weight in weights]
    if not values:
        return []
    if combine not in WEIGHED or len(values) != members or not all(0 < value < math.inf for value in values):
        raise InputError(
            f"expected a positive weight for each of {members} members, and combine to be one of "
            f"{list(WEIGHED)}, got {values} and {combine!r}"
        )
    return values


def _checked_names(names: Sequence[str], members: Sequence[Monitor]) -> list[str]:
    """The names, or those of the classes; numbered where a class occurs twice."""
    found = list(names) or [type(member).__name__ for member in members]
    if len(found) != len(members) or (names and len(set(found)) < len(found)):
        raise InputError(f"expected a name of its own for each of {len(members)} members, got {found}")
    counts = Counter(found)
    return [
        name if counts[name] == 1 else f"{name} {found[: place + 1].count(name)}"
        for place, name in enumerate(found)
    ]
