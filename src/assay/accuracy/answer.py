"""The rule behind the headline, taught by lessons: faults of the fault library on the labelled reference.

The rule is fixed; it looks at no operational label. In this order:

1. Inputs that repeat, stay constant or are saturated, and sets like attacks or like nothing taught: cannot
   tell.
2. If a change of class frequencies alone explains the set, the accuracy follows from the reference.
3. Else it is the mean of two taught views, nuclear norm and ridge regression; if they, or the trees, are
   farther apart than 15 points: cannot tell. Where nothing was taught, see outputs_only.py.

The interval is as wide as the errors on faults that were left out, whole faults and whole categories, on rows
that taught nothing. The constants were chosen on the development networks of benchmarks/subjects.py.
"""

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, Self

import numpy as np
import torch

from assay.accuracy.calibration import Calibration, calibrated
from assay.accuracy.class_mix import MOST_CLASSES, ROWS_PER_CLASS, ClassMixModel
from assay.accuracy.explanation import ExplanationModel
from assay.accuracy.headline import Headline
from assay.accuracy.input_obstacles import input_obstacle
from assay.accuracy.lesson_reader import LessonReader
from assay.accuracy.lesson_sets import ALL, BOTH, LessonSet, LessonTable
from assay.accuracy.outputs_only import LESS, outputs_estimates, outputs_only_headline
from assay.accuracy.set_counter import CountedRows, SetCounter
from assay.accuracy.set_place import SetPlace
from assay.accuracy.set_sums import SetSums
from assay.accuracy.views import Views, combined, disagreement
from assay.errors import InputError
from assay.faults.lessons import ATTACK, Lesson
from assay.storage import storable
from assay.trace import Trace
from assay.volatility.certainty import Doubles

FEWEST_ROWS = 50
"""Of a set: about fewer, nothing can be told."""
FEWEST_REFERENCE_ROWS = 100
"""With fewer, nothing is taught."""
FEWEST_FAULTS = 3
"""Taught faults: with fewer, errors on a fault that was left out say nothing."""
NOT_TEACHING = ("anomaly", ATTACK)
"""Categories that teach the views nothing: sensor failures among the teachers made the answers about noise
and shift worse, attacks all answers. Intervals are as wide as needed for sensor failures, too."""
APART = 0.15
"""Views farther apart than this cannot both be right."""
ALIKE = 0.1
"""How near the trees must be to what class frequencies say."""
FITS = 0.05
"""p-value above which class frequencies alone explain a set."""


@storable("accuracy.TaughtAnswer")
class TaughtAnswer:
    """Learns from lessons; after that the sums of a set are enough.

    Fitting keeps the signals of the lessons' rows, 64 bytes each, until it is done.
    """

    def __init__(self, *, seed: int = 0) -> None:
        self.seed = seed
        self.counter_ = SetCounter()
        self.sets_: list[LessonSet] = []
        self.calibrations_: dict[int, Calibration] = {}
        self.explanation_: ExplanationModel | None = None
        self.mix_: ClassMixModel | None = None
        self.reference_: SetSums | None = None
        self.accuracy_ = float("nan")
        self._views: dict[int, Views] = {}

    def fit(self, lessons: Iterable[Lesson]) -> Self:
        """Learn from the lessons of one labelled reference, the first of them without a fault."""
        stream = iter(lessons)
        clean = next(stream)
        self.counter_ = SetCounter.fitted(clean.trace, seed=self.seed)
        reader = LessonReader(self.counter_, clean.trace, self.seed)
        for lesson in chain([clean], stream):
            reader.read(lesson)
        self.explanation_ = reader.explanation()
        self._know(clean.trace, self.counter_.rows(clean.trace, reader.signals(clean)))
        if len({one.fault for one in reader.sets if self._teaches(one)}) > FEWEST_FAULTS:  # with CLEAN
            self.sets_ = reader.sets
            self._calibrate()
        return self

    @property
    def taught_(self) -> bool:
        """Whether there were enough faults to learn from."""
        return bool(self.sets_)

    def count(self, trace: Trace) -> SetSums:
        """The sums of a set, which is all that must leave a device."""
        rows = self.counter_.rows(trace)
        if not np.isfinite(rows.scores).all():
            place = int((~np.isfinite(rows.scores)).any(axis=1).argmax())
            raise InputError(
                f"expected finite logits and features, got NaN or infinity in row {place}; leave such rows "
                "out, and look for a failing layer"
            )
        return self.counter_.sums(rows)

    def headline(self, sums: SetSums, level: float = 0.95) -> Headline:
        """The answer about a set."""
        assert self.reference_ is not None
        if obstacle := self._obstacle(sums):
            return Headline.unknown(obstacle)
        size = self._size(sums.rows)
        views = self._taught_views(size).of(sums.signals[None]) if self.taught_ else None
        check = (
            views[0, 2] if views is not None else outputs_estimates(sums, self.reference_, self.accuracy_)[0]
        )
        if self.mix_ is not None:
            mix = self.mix_.explained(sums.cells, level, self.seed)
            # A collapse onto few classes looks like a change of their frequencies; trees know the difference.
            if mix.p_value > FITS and abs(mix.value - check) < ALIKE:
                known = "" if self.taught_ else f", as far as outputs show: {LESS}"
                reason = f"nothing changed but, at most, class frequencies{known}"
                return self._held(mix.value, mix.lower, mix.upper, reason)
        if views is None:
            return outputs_only_headline(sums, self.reference_, self.accuracy_)
        return self._taught(sums, size, views, level)

    def place(self, sums: SetSums) -> SetPlace | None:
        """Where the set lies among the lessons; None where nothing was taught."""
        if not self.taught_:
            return None
        whole = [one for one in self.sets_ if one.size == ALL and one.half == BOTH and not one.mixed]
        return SetPlace.of(whole, sums.signals)

    def _taught(self, sums: SetSums, size: int, views: Doubles, level: float) -> Headline:
        apart = float(disagreement(views)[0])
        if apart > APART:
            return Headline.unknown(
                f"what was learned from faults disagrees by {100 * apart:.0f} points about this set (nuclear "
                f"norm {views[0, 0]:.2f}, all signals {views[0, 1]:.2f}, with other class frequencies "
                f"{views[0, 2]:.2f}); label some rows"
            )
        value = float(combined(views)[0])
        reach = self.calibrations_[size].half_width(value, apart, level, sums.rows)
        return self._held(value, max(0.0, value - reach), min(1.0, value + reach), "learned from faults")

    def _held(self, value: float, lower: float, upper: float, reason: str) -> Headline:
        return Headline.of(value, lower, upper, self.accuracy_, reason)

    def _obstacle(self, sums: SetSums) -> str:
        """Why nothing can be told about the set, whatever its signals; empty where nothing is in the way."""
        assert self.reference_ is not None
        assert self.explanation_ is not None
        if sums.rows < FEWEST_ROWS:
            return f"expected at least {FEWEST_ROWS} rows, got {sums.rows}; collect more"
        if reason := input_obstacle(sums, self.reference_):
            return reason
        if not self.taught_:
            return ""
        explanation = self.explanation_.of(sums.doubts)
        if explanation.attacked > self.explanation_.attacked_limit:
            return (
                f"{explanation.attacked:.0%} of the rows look like attacks, under which a network is sure "
                "and wrong; label some rows"
            )
        if explanation.unexplained > self.explanation_.unexplained_limit:
            return (
                f"the set is like nothing that was taught ({explanation.unexplained:.0%} of it unexplained, "
                f"at most {self.explanation_.unexplained_limit:.0%} of a fault); label some rows"
            )
        return ""

    def _know(self, reference: Trace, rows: CountedRows) -> None:
        self.reference_ = self.counter_.sums(rows)
        self.accuracy_ = float(reference.correct.double().mean())
        present = int((torch.bincount(reference.known_labels) > 0).sum())
        if self.counter_.classes_ <= MOST_CLASSES and len(reference) >= ROWS_PER_CLASS * present:
            labels, correct = reference.known_labels.numpy(), reference.correct.double().numpy()
            shape = (self.counter_.classes_, self.counter_.class_cells)
            self.mix_ = ClassMixModel.fitted(rows.cells, labels, correct, shape)

    def _calibrate(self) -> None:
        assert self.reference_ is not None
        half = self.reference_.rows // 2
        for size in dict.fromkeys(one.size for one in self.sets_):
            sets = [one for one in self.sets_ if one.size == size]
            self.calibrations_[size] = calibrated(sets, self._teaches, size or half)

    def _teaches(self, one: LessonSet) -> bool:
        """Whether the views learn from this set."""
        return one.category not in NOT_TEACHING

    def _size(self, rows: int) -> int:
        """The size of sets that are most like a set of so many rows."""
        assert self.reference_ is not None
        smaller = sorted(size for size in self.calibrations_ if size)
        if 2 * rows >= self.reference_.rows or not smaller:
            return ALL
        return max((size for size in smaller if size <= rows), default=smaller[0])

    def _taught_views(self, size: int) -> Views:
        if size not in self._views:
            sets = [one for one in self.sets_ if one.size == size and self._teaches(one)]
            wanted = [one for one in sets if one.mixed or one.half == BOTH] if size == ALL else sets
            self._views[size] = Views(wanted)
        return self._views[size]

    def state(self) -> dict[str, Any]:
        kept = {name: value for name, value in vars(self).items() if name not in ("_views", "sets_")}
        return {**kept, "sets_": LessonTable.of(self.sets_)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        answer = cls(seed=state["seed"])
        vars(answer).update({**state, "sets_": state["sets_"].sets()})
        return answer
