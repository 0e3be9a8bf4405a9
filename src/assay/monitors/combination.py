"""Several monitors as one, on the common scale of p-values: AnyOf, AllOf, Standardised."""

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from operator import or_

import numpy as np
import torch
from torch import Tensor

from assay.errors import InputError
from assay.monitors.metadata import Metadata, Needs
from assay.monitors.monitor import Monitor
from assay.monitors.parts.joint_fit import fit_together
from assay.monitors.parts.reservoir import Reservoir, checked_limit
from assay.monitors.parts.row_sample import TraceSample
from assay.network.graph import under_tracer
from assay.trace import Trace

COMBINE = ("fisher", "mean")


class _Combination(Monitor):
    """s(x) = -ln p(x), p a p-value made of the members' conformal p-values.

    Member m gives p_m = (1 + #{reference scores >= s_m(x)}) / (n + 1), which for an in-distribution input is
    at most a with probability at most a (Vovk et al. 2005). Reference rows are rows no member was fitted on:
    a random share `held_out` of the data given to `fit`, at most `limit` of them. Members are fitted in
    place, in one pass over a stream. With prefit=True they are already fitted and all rows are reference.

    No p-value is below 1 / (n + 1), so scores beyond the reference tie: raise `limit` where the order of
    extremes matters. A member's score that is not a number makes the combination's so, which is an alarm.
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
        self.limit = checked_limit(limit)
        self.held_out = held_out
        self.prefit = prefit
        self.seed = seed

    reference_: list[Tensor]

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
        """The members' own p-values, (members, N): which of them objects."""
        scores = [member.score(trace) for member in self.members]
        return torch.stack(list(map(_p_values, scores, self.reference_)))

    def _fit(self, traces: Iterator[Trace]) -> None:
        scores = self._streamed_scores(traces) if self.prefit else self._held_out_scores(traces)
        for member, found in zip(self.members, scores, strict=True):
            if not torch.isfinite(found).all():
                raise InputError(
                    f"expected finite scores of {member!r} on normal rows, got NaN or infinity; leave it out"
                )
        self.reference_ = [found.sort().values for found in scores]
        self.remedy_ = "; ".join(member.remedy_ for member in self.members if member.remedy_)

    def _score(self, trace: Trace) -> Tensor:
        return self._combined(self.p_values(trace))

    @abstractmethod
    def _combined(self, p_values: Tensor) -> Tensor:
        """-ln of the combined p-value, from p-values (members, N)."""

    def _streamed_scores(self, traces: Iterator[Trace]) -> list[Tensor]:
        reservoirs = [Reservoir(self.limit, self.seed) for _ in self.members]
        for trace in traces:
            for reservoir, member in zip(reservoirs, self.members, strict=True):
                reservoir.add(member.score(trace))
        return [reservoir.rows() for reservoir in reservoirs]

    def _held_out_scores(self, traces: Iterator[Trace]) -> list[Tensor]:
        held = TraceSample(self.limit, self.seed)
        fit_together(self.members, self._without(held, traces))
        reference = held.trace()
        if not len(reference):
            raise InputError(
                f"expected enough rows to hold out a share of {self.held_out}, got too few; "
                "fit on more data, or fit the members first and pass prefit=True"
            )
        return [member.score(reference) for member in self.members]

    def _forget(self) -> None:
        super()._forget()
        for member in () if self.prefit else self.members:
            member._forget()

    def _without(self, held: TraceSample, traces: Iterator[Trace]) -> Iterator[Trace]:
        """The rows to fit on; the others go to `held`."""
        generator = np.random.default_rng([self.seed, 1])
        for trace in traces:
            out = torch.from_numpy(generator.random(len(trace)) < self.held_out)
            held.add(trace[out])
            yield trace[~out]


class AnyOf(_Combination):
    """p = M min_m p_m over M members: suspicious where at least one objects.

    The factor M (Bonferroni) keeps p a p-value however members depend on each other. p may exceed 1 and
    the score fall below 0: no evidence, and still in order.
    """

    metadata = replace(_Combination.metadata, score="-ln(smallest p-value × number of members)")

    def _combined(self, p_values: Tensor) -> Tensor:
        return -(p_values.amin(dim=0) * len(p_values)).log()


class AllOf(_Combination):
    """p = max_m p_m: suspicious only where every member objects. A p-value under any dependence."""

    metadata = replace(_Combination.metadata, score="-ln(largest p-value)")

    def _combined(self, p_values: Tensor) -> Tensor:
        return -p_values.amax(dim=0).log()


class Standardised(_Combination):
    """One monitor on the scale of p-values, or several weighed together.

    combine="fisher": p = P(chi2 with 2M degrees > -2 sum_m ln p_m) (Fisher 1932), a p-value if members are
    independent; dependent members make it too small, so let Guard calibrate the threshold. combine="mean":
    p = 2 mean_m p_m, a p-value under any dependence (Vovk and Wang 2020). One member: p = p_1 in both.
    """

    metadata = replace(
        _Combination.metadata,
        score="-ln(p), p of all members' p-values together",
        paper="Fisher",
        year=1932,
    )

    def __init__(
        self,
        members: Sequence[Monitor] | Monitor,
        *,
        combine: str = "fisher",
        limit: int | None = 1000,
        held_out: float = 0.2,
        prefit: bool = False,
        seed: int = 0,
    ) -> None:
        if combine not in COMBINE:
            raise InputError(f"expected combine to be one of {list(COMBINE)}, got {combine!r}")
        super().__init__(
            [members] if isinstance(members, Monitor) else members,
            limit=limit,
            held_out=held_out,
            prefit=prefit,
            seed=seed,
        )
        self.combine = combine

    def _combined(self, p_values: Tensor) -> Tensor:
        count = len(p_values)
        if self.combine == "mean":
            return -p_values.mean(dim=0).log() - math.log(min(count, 2))
        # P(chi2_2M > 2 h) is the regularised upper incomplete gamma function Q(M, h).
        evidence = -p_values.log().sum(dim=0)
        if under_tracer():  # Q(M, h) = exp(-h) sum_{k < M} h^k / k!, for whole M
            terms = [evidence**k / math.factorial(k) for k in range(count)]
            return evidence - torch.stack(terms).sum(dim=0).log()
        p_value: Tensor = torch.special.gammaincc(torch.full_like(evidence, count), evidence)
        return -p_value.log()


def _p_values(scores: Tensor, reference: Tensor) -> Tensor:
    if under_tracer():  # graphs have no search; a count over the reference says the same
        at_least = (reference >= scores[:, None]).sum(dim=1)
    else:
        at_least = len(reference) - torch.searchsorted(reference, scores)
    p_values = (1 + at_least).double() / (len(reference) + 1)
    return torch.where(torch.isnan(scores), torch.nan, p_values)
