"""Lesson sets: sets of rows of a lesson, with the signals and the accuracy of each.

A lesson is the labelled reference under one fault. All lessons are split into the same two halves of rows, so
that what is learned on one half can be tried on the other: on rows it never saw, as in operation. Sets are
the halves, both together, smaller parts of them (an answer about 100 rows is less sure than one about 1,000),
and parts with other class frequencies.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from assay.accuracy.set_counter import CountedRows, SetCounter, Whole
from assay.accuracy.set_sums import SetSums, set_signals
from assay.storage import storable
from assay.volatility.certainty import Doubles

SIZES = (100, 300)
"""Rows per smaller set."""
BLOCKS = 2
"""Smaller sets of each size from each half of a lesson."""
MIXES = (0.5, 2.0)
"""Class frequencies of mixed sets are drawn from Dirichlet distributions with these parameters."""
MANY_CLASSES = 100
"""With more, there are no smaller sets: a nuclear norm takes the cube of the number of classes."""

BOTH = 2
"""The half of a set that has rows of both halves."""
ALL = 0
"""The size of a set that has all rows of its half."""


@dataclass(frozen=True, eq=False)
class LessonSet:
    """One set of rows of a lesson; `half` is 0, 1 or BOTH, `size` a number of rows or ALL."""

    fault: str
    category: str
    half: int
    size: int
    mixed: bool
    signals: Doubles
    accuracy: float


@storable("accuracy.LessonTable")
@dataclass(frozen=True, eq=False)
class LessonTable:
    """Many sets as a few columns, which is how a file has them."""

    faults: list[str]
    categories: list[str]
    places: Whole
    """(sets, 3): half, size, mixed."""
    signals: Doubles
    accuracies: Doubles

    @classmethod
    def of(cls, sets: Sequence[LessonSet]) -> "LessonTable":
        return cls(
            [one.fault for one in sets],
            [one.category for one in sets],
            np.array([(one.half, one.size, one.mixed) for one in sets], np.int64).reshape(-1, 3),
            np.array([one.signals for one in sets]),
            np.array([one.accuracy for one in sets]),
        )

    def sets(self) -> list[LessonSet]:
        columns = zip(
            self.faults, self.categories, self.places.tolist(), self.signals, self.accuracies, strict=True
        )
        return [
            LessonSet(fault, category, half, size, bool(mixed), signals, float(accuracy))
            for fault, category, (half, size, mixed), signals, accuracy in columns
        ]


@dataclass(frozen=True, eq=False)
class LessonRows:
    """The rows of a lesson with what is known of them."""

    fault: str
    category: str
    rows: CountedRows
    labels: Whole
    correct: Doubles


class LessonSets:
    """Makes the sets of one lesson after another, the same rows in all of them."""

    def __init__(self, counter: SetCounter, halves: tuple[Whole, Whole], labels: Whole, seed: int) -> None:
        self._counter = counter
        self._halves = halves
        self._parts = list(_parts(halves, labels, counter.classes_, np.random.default_rng(seed)))

    def of(self, lesson: LessonRows) -> Iterator[LessonSet]:
        sums = []
        for places in self._halves:
            sums.append(self._counter.sums(lesson.rows, places))
        whole = [(0, sums[0], self._halves[0]), (1, sums[1], self._halves[1])]
        both = np.concatenate(self._halves)
        for half, one, places in (*whole, (BOTH, sums[0] + sums[1], both)):
            yield self._lesson_set(lesson, half, ALL, False, one, places)
        for half, size, mixed, places in self._parts:
            yield self._lesson_set(lesson, half, size, mixed, self._counter.sums(lesson.rows, places), places)

    def _lesson_set(
        self, lesson: LessonRows, half: int, size: int, mixed: bool, sums: SetSums, places: Whole
    ) -> LessonSet:
        accuracy = float(lesson.correct[places].mean())
        return LessonSet(lesson.fault, lesson.category, half, size, mixed, set_signals(sums), accuracy)


def _parts(
    halves: tuple[Whole, Whole], labels: Whole, classes: int, generator: np.random.Generator
) -> Iterator[tuple[int, int, bool, Whole]]:
    """(half, size, mixed, rows) of the smaller and mixed sets."""
    sizes = [size for size in SIZES if 2 * size <= len(halves[0])] if classes <= MANY_CLASSES else []
    for half, places in enumerate(halves):
        for size in sizes:
            shuffled = generator.permutation(places)
            for start in range(0, min(BLOCKS * size, len(places) - size + 1), size):
                yield half, size, False, shuffled[start : start + size]
        for size in (ALL, *sizes):
            for parameter in MIXES:
                yield (
                    half,
                    size,
                    True,
                    _mixed(places, labels, size or len(places), parameter, classes, generator),
                )


def _mixed(
    places: Whole, labels: Whole, size: int, parameter: float, classes: int, generator: np.random.Generator
) -> Whole:
    """So many of these rows, drawn with other class frequencies."""
    known = labels[places]
    weights = generator.dirichlet(np.full(classes, parameter))[known] / np.bincount(known)[known]
    total = weights.sum()
    shares: npt.NDArray[np.float64] = weights / total if total > 0 else np.full(len(places), 1 / len(places))
    return np.asarray(generator.choice(places, size, p=shares))
