"""Where a set lies among the lessons, in a plane: what it is like, and whether it is like anything."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from assay.accuracy.lesson_sets import LessonSet
from assay.storage import storable
from assay.volatility.certainty import Doubles


@storable("accuracy.SetPlace")
@dataclass(frozen=True, eq=False)
class SetPlace:
    """Lessons and the set in the plane of the two directions in which the lessons' signals differ most."""

    lessons: Doubles
    """(lessons, 2)"""
    accuracies: Doubles
    categories: list[str]
    here: Doubles
    """(2,): the set."""

    @classmethod
    def of(cls, sets: Sequence[LessonSet], signals: Doubles) -> "SetPlace":
        """Principal components of the standardised signals."""
        table = np.stack([one.signals for one in sets])
        mean, spread = table.mean(axis=0), table.std(axis=0)
        spread = np.where(spread > 0, spread, np.inf)
        standard = (table - mean) / spread
        directions = np.linalg.svd(standard, full_matrices=False)[2][:2].T
        here = ((signals - mean) / spread) @ directions
        accuracies = np.array([one.accuracy for one in sets])
        return cls(standard @ directions, accuracies, [one.category for one in sets], here)
