"""How far off the answer is: errors on lessons that were left out whole, on rows that taught nothing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from assay.accuracy.lesson_sets import LessonSet
from assay.accuracy.views import Views, combined, disagreement
from assay.faults.lessons import CLEAN
from assay.storage import storable
from assay.volatility.certainty import Doubles


@storable("accuracy.Calibration")
@dataclass(frozen=True, eq=False)
class Calibration:
    """For sets of one size: errors in units of what was expected.

    Each fault, and once more each category of faults, is left out of the lessons; the views are taught with
    the rest on one half of the rows and tried on the fault's lessons on the other half. What is expected of
    an error grows with the disagreement of the views and with the sampling error of a share.
    """

    rows: int
    """Of the sets on which errors were made."""
    floor: float
    """The error expected where the views agree."""
    errors: Doubles

    def half_width(self, value: float, apart: float, level: float, rows: int) -> float:
        """Half the width of the `level` interval of an answer about `rows` rows."""
        needed = min(1.0, level * (1 + 1 / len(self.errors)))  # as in split conformal prediction
        ratio = float(np.quantile(self.errors, needed, method="higher"))
        return ratio * float(_expected(self.floor, np.array(apart), np.array(value), min(rows, self.rows)))


def calibrated(sets: Sequence[LessonSet], teaches: Callable[[LessonSet], bool], rows: int) -> Calibration:
    """From the sets of one size, `rows` each; `teaches` says which of them the views may learn from."""
    taught = [one for one in sets if one.half == 0 and teaches(one)]
    tried = [one for one in sets if one.half == 1 and not one.mixed]
    found = [_errors(taught, tried, key) for key in (_fault, _category)]
    values, apart, truths = (np.concatenate(parts) for parts in zip(*found, strict=True))
    errors = np.abs(values - truths)
    floor = max(float(np.median(errors)), 1 / rows)
    return Calibration(rows, floor, errors / _expected(floor, apart, values, rows))


def _expected(floor: float, apart: Doubles, value: Doubles, rows: int) -> Doubles:
    inside = np.clip(value, 1 / rows, 1 - 1 / rows)
    return np.asarray(np.sqrt(floor**2 + apart**2 + inside * (1 - inside) / rows))


def _errors(
    taught: Sequence[LessonSet], tried: Sequence[LessonSet], key: Callable[[LessonSet], str]
) -> tuple[Doubles, Doubles, Doubles]:
    """(values, disagreements, truths) with each group of lessons left out in turn."""
    values, apart, truths = [], [], []
    for group in dict.fromkeys(map(key, tried)):
        kept = [one for one in taught if key(one) != group or one.category == CLEAN]
        left_out = [one for one in tried if key(one) == group]
        if len({one.fault for one in kept}) < 2:
            continue
        views = Views(kept).of(np.stack([one.signals for one in left_out]))
        values.append(combined(views))
        apart.append(disagreement(views))
        truths.append(np.array([one.accuracy for one in left_out]))
    return np.concatenate(values), np.concatenate(apart), np.concatenate(truths)


def _fault(one: LessonSet) -> str:
    return one.fault


def _category(one: LessonSet) -> str:
    return one.category
