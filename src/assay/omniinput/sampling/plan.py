"""Plan and Budget: the settings of a sampling run, and how much of its budget is spent."""

import time
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from assay.omniinput.sampling.ladder import Reach
from assay.storage import storable

Array = NDArray[np.float64]

DEFAULT_BINS = 40


@storable("omniinput.Plan")
@dataclass(frozen=True)
class Plan:
    """The settings of a run; a checkpoint is resumed only under an equal plan.

    `edges` are those of the reported bins; without them, `bins` equal ones cover the range of the ladder.
    """

    edges: Array | None
    bins: int = DEFAULT_BINS
    seed: int = 0
    ensembles: int = 2
    replicas: int | None = None
    most_replicas: int = 96
    swap_every: int = 1
    keep: int = 64
    adapt_share: float = 0.2

    def reach(self) -> Reach:
        if self.edges is None:
            return Reach(None, None)
        return Reach(_pair(self.edges[:2]), _pair(self.edges[-2:]))

    def differences(self, other: "Plan") -> list[str]:
        """The names of the settings that differ."""
        return [
            name
            for name in self.__dataclass_fields__
            if not np.array_equal(np.asarray(getattr(self, name)), np.asarray(getattr(other, name)))
        ]


def _pair(edges: Array) -> tuple[float, float]:
    return float(edges[0]), float(edges[1])


@dataclass
class Budget:
    """A limit in evaluations, in seconds, or both; `earlier` seconds were spent before a resume."""

    evaluations: int | None
    seconds: float | None
    earlier: float = 0.0
    started: float = field(default_factory=time.monotonic)

    @property
    def elapsed(self) -> float:
        return self.earlier + time.monotonic() - self.started

    def affordable(self, evaluations: int) -> float:
        """How many evaluations the whole budget allows, judged by the speed of those so far.

        Before the first evaluation a limit in seconds allows none that one could promise.
        """
        most = float("inf") if self.evaluations is None else float(self.evaluations)
        if self.seconds is None:
            return most
        return min(most, evaluations / max(self.elapsed, 1e-9) * self.seconds)

    def fraction(self, evaluations: int) -> float:
        """The share that is spent; 1 or more if nothing is left."""
        by_count = evaluations / self.evaluations if self.evaluations else 0.0
        by_time = self.elapsed / self.seconds if self.seconds else 0.0
        return max(by_count, by_time)

    def allows(self, evaluations: int) -> bool:
        """Whether this total number of evaluations would stay within the budget."""
        enough = self.evaluations is None or evaluations <= self.evaluations
        return enough and (self.seconds is None or self.elapsed < self.seconds)
