"""LessonReader: from a stream of lessons to their sets and cells of doubt, one Trace in memory at a time."""

import numpy as np
import torch

from assay.accuracy.explanation import ExplanationModel
from assay.accuracy.lesson_sets import LessonRows, LessonSet, LessonSets
from assay.accuracy.row_signals import RowSignals
from assay.accuracy.set_counter import SetCounter, halves
from assay.errors import InputError
from assay.faults.lessons import ATTACK, Lesson
from assay.trace import Trace
from assay.volatility.certainty import Doubles

STRONG = 0.15
"""How far an attack lowers the accuracy, at the least, to be taught: a weaker one looks like no attack."""


class LessonReader:
    """Reads lessons of one reference. Rows of each half are measured by their distance to the other half, so
    that no row meets itself: in operation none does, either."""

    def __init__(self, counter: SetCounter, reference: Trace, seed: int) -> None:
        self.sets: list[LessonSet] = []
        first, second = halves(len(reference), seed)
        self._counter = counter
        self._rows = len(reference)
        self._accuracy = _accuracy(reference)
        self._first = np.isin(np.arange(len(reference)), first)
        self._to_second = RowSignals.fitted(reference[second], seed=seed)
        labels = reference.known_labels.numpy()
        self._makes_sets = LessonSets(counter, (first.numpy(), second.numpy()), labels, seed)
        self._signals: list[Doubles] = []
        self._faults: list[str] = []
        self._attacks: list[Doubles] = []

    def read(self, lesson: Lesson) -> None:
        self._expect_same_rows(lesson)
        if lesson.category == ATTACK and _accuracy(lesson.trace) > self._accuracy - STRONG:
            return
        signals = self.signals(lesson)
        if lesson.category == ATTACK:
            self._attacks.append(signals)
            return
        trace = lesson.trace
        rows = self._counter.rows(trace, signals)
        labels, correct = trace.known_labels.numpy(), trace.correct.double().numpy()
        self.sets += self._makes_sets.of(LessonRows(lesson.fault, lesson.category, rows, labels, correct))
        self._signals.append(signals)
        self._faults.append(lesson.fault)

    def _expect_same_rows(self, lesson: Lesson) -> None:
        """Only attacks may be about a part of the rows, if they say which."""
        places = lesson.places if lesson.category == ATTACK else None
        wanted = self._rows if places is None else len(places)
        if len(lesson.trace) != wanted:
            raise InputError(
                f"expected {wanted} rows in every lesson, as in the first, got {len(lesson.trace)} under "
                f"{lesson.fault}; pass lessons of the same rows"
            )

    def signals(self, lesson: Lesson) -> Doubles:
        """The row signals of a lesson."""
        places = np.arange(self._rows) if lesson.places is None else lesson.places.numpy()
        first = self._first[places]
        signals = np.empty((len(places), len(self._counter.signals_.names)))
        for rows, measure in ((first, self._to_second), (~first, self._counter.signals_)):
            if rows.any():
                signals[rows] = measure.of(lesson.trace[torch.from_numpy(rows)])
        return signals

    def explanation(self) -> ExplanationModel:
        """The model of all lessons read; sets the counter's bins of doubt, which are those of all lessons."""
        self._counter.set_doubt_edges(np.concatenate(self._signals))
        counted = [self._counter.doubts(signals) for signals in self._signals]
        attacks = [self._counter.doubts(signals) for signals in self._attacks]
        empty = np.zeros((0, self._counter.doubt_cells))
        return ExplanationModel.fitted(
            np.stack(counted), self._faults, np.stack(attacks) if attacks else empty
        )


def _accuracy(trace: Trace) -> float:
    return float(trace.correct.double().mean())
