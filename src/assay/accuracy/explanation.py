"""Which lessons explain a set? None, where it is like nothing taught; attacks, where it is like those."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from assay.storage import storable
from assay.volatility.certainty import Doubles

STEPS = 100
WEIGHT = 2.0
"""Rows of all lessons together that are added to each, so that no cell is impossible."""
RARE = 0.975
"""A set is like nothing taught if its unexplained share is above this quantile of lessons left out."""
ATTACKED = 0.15
OFTEN = 0.95
"""A set is like attacks if they explain more than 15 % of it and more than this quantile of what they explain
of lessons left out: where attacks look like rows of every day, no set can be told from an attacked one."""


@dataclass(frozen=True)
class Explanation:
    """`attacked`: the share of the set that attacks explain best; `unexplained`: what no lesson explains."""

    attacked: float
    unexplained: float


@storable("accuracy.ExplanationModel")
@dataclass(frozen=True, eq=False)
class ExplanationModel:
    """Cells of doubt of all lessons. A set is taken as a mixture of lessons, with the weights that fit best
    (expectation maximisation); attacks count as lessons here, and only here."""

    lessons: Doubles
    """(lessons, cells): rows per cell."""
    attacks: Doubles
    unexplained_limit: float = 1.0
    """What lessons leave unexplained of a fault that was left out, but for the worst 2.5 %."""
    attacked_limit: float = ATTACKED
    """The share above which a set counts as attacked."""

    @classmethod
    def fitted(cls, lessons: Doubles, faults: Sequence[str], attacks: Doubles) -> "ExplanationModel":
        """Both limits are those that faults keep when they are left out."""
        found: list[Explanation] = []
        for fault in dict.fromkeys(faults):
            others = np.array([name != fault for name in faults])
            if others.any():
                model = cls(lessons[others], attacks)
                found += [model.of(counts) for counts in lessons[~others]]
        if not found:
            return cls(lessons, attacks)
        unexplained = float(np.quantile([one.unexplained for one in found], RARE))
        attacked = float(np.quantile([one.attacked for one in found], OFTEN))
        return cls(lessons, attacks, unexplained, max(ATTACKED, attacked))

    def of(self, counts: Doubles) -> Explanation:
        everywhere = self.lessons.sum(axis=0) / self.lessons.sum()
        both = np.concatenate([self.lessons, self.attacks.reshape(-1, self.lessons.shape[1])])
        shares = (both + WEIGHT * everywhere) / (both.sum(axis=1, keepdims=True) + WEIGHT)
        weights = np.full(len(both), 1 / len(both))
        for _ in range(STEPS):
            mixed = weights @ shares
            ratio = np.divide(counts, mixed, out=np.zeros_like(counts), where=mixed > 0)
            weights = weights * (shares @ ratio) / counts.sum()
        mixed = weights @ shares
        rows = counts.sum()
        # Counts differ from shares by chance alone; this is the mean of that, |X| of a normal X.
        chance = np.sqrt(2 * mixed * (1 - mixed) / (np.pi * rows)).sum() / 2
        apart = np.abs(counts / rows - mixed).sum() / 2
        return Explanation(float(weights[len(self.lessons) :].sum()), max(0.0, float(apart - chance)))
