"""The accuracy from a few labelled operational rows, helped by guesses for all rows (prediction-powered)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from assay.accuracy.few_labels import checked_rows_drawn
from assay.accuracy.guesses import checked_guesses
from assay.accuracy.label_draw import RowsToLabel
from assay.errors import InputError
from assay.statistics import check_level
from assay.storage import storable
from assay.table import tabled
from assay.volatility.certainty import Doubles

if TYPE_CHECKING:
    from matplotlib.figure import Figure

IMAGINED = 0.75
"""How much of a row is imagined: right for the upper end, wrong for the lower. One is Clopper and Pearson's."""
FAR_TAIL = 0.1
"""The share of the error that the end on the far side of what was expected gets."""
FEWEST_TO_TUNE = 3
"""Labelled rows from which the power of the guesses can be tuned."""
DRAWS = 10_000
_MOST_VALUES = 2_000_000
_FACTOR = 3.0


@storable("accuracy.LabelledAccuracy")
@dataclass(frozen=True, eq=False)
class LabelledAccuracy:
    """The accuracy on all operational rows, from labels of some of them and guesses for all."""

    title: ClassVar[str] = "Accuracy from a few labels"

    value: float
    lower: float
    upper: float
    alone: tuple[float, float, float]
    """Value, lower and upper from the same labels without the guesses."""
    expected: float
    """The accuracy that was expected before there were labels."""
    power: float
    """How much the guesses count, 0 to 1: lambda of PPI++."""
    labelled: int
    rows: int
    level: float

    @tabled
    def to_frame(self) -> pd.DataFrame:
        """Two rows: from labels and guesses, and from the labels alone."""
        both = {"labels and guesses": (self.value, self.lower, self.upper), "labels alone": self.alone}
        found = [(name, *answer) for name, answer in both.items()]
        return pd.DataFrame(found, columns=["from", "value", "lower", "upper"])

    def summary(self) -> str:
        return (
            f"With {self.labelled} of {self.rows} rows labelled the accuracy is {self.value:.1%} "
            f"({self.level:.0%} interval {self.lower:.1%} to {self.upper:.1%}), whatever has changed; "
            f"{self.expected:.1%} was expected without labels. From the labels alone it would be "
            f"{self.alone[0]:.1%} ({self.alone[1]:.1%} to {self.alone[2]:.1%})."
        )

    def plot(self) -> "Figure":
        from assay.accuracy.figures import labelled_accuracy_figure

        return labelled_accuracy_figure(self.to_frame(), self.expected, self.level)


def accuracy_from_labels(
    guesses: Any,
    rows: Any,
    correct: Any,
    *,
    probabilities: Any = None,
    expected: float | None = None,
    level: float = 0.95,
    seed: int = 0,
) -> LabelledAccuracy:
    """The share of right predictions among N operational rows, from the labels of some of them.

    `guesses`: how likely each of the N rows is right, any numbers in [0, 1]. `rows`: the labelled ones, as
    `rows_to_label` drew them, or their places, which must have been drawn at random: uniformly, or with
    `probabilities`, the chance of each of them to be among the labelled rows. `correct`: whether each of them
    is right. `expected`: the accuracy expected without labels (default: the mean of the guesses).

    The estimate is that of prediction-powered inference (Angelopoulos et al. 2023): what the guesses say of
    all rows, plus how far they are off on the labelled ones, weighted by their probabilities (Hajek). The
    guesses count by the factor lambda that makes the variance least (PPI++, Angelopoulos, Duchi and Zrnic
    2024), between 0 and 1; useless guesses do no harm.

    The interval aims at the accuracy realised on these N rows and holds whatever the shift. It needs no
    normal approximation, which fails near 0 and 1: the labelled rows are reweighted at random (Bayesian
    bootstrap), with three quarters of an imagined row that is right for the upper end and wrong for the
    lower. A whole one is the bound of Gaffke (2005), which is Clopper and Pearson's where guesses have no
    power. Which of the two ends gets the larger share of the error depends on `expected` (Pratt 1961; Yu and
    Hoff 2018): the interval is shorter if the expectation was right, longer if it was wrong, and valid either
    way, since the expectation was there before the labels.
    """
    known = checked_guesses(guesses)
    check_level(level)
    places = checked_rows_drawn(rows, len(known))
    right = _checked_correct(correct, len(places))
    if probabilities is None and isinstance(rows, RowsToLabel):
        probabilities = rows.probabilities
    weights = _weights(probabilities, len(places), len(known))
    before = float(known.mean()) if expected is None else _checked_expected(expected)
    apart = known[places] - known.mean()
    power = _power(right, apart, weights)
    sample = _Sample(right, weights, len(known), seed)
    value, *ends = sample.answer(power * apart, before, FAR_TAIL, level)
    alone = sample.answer(np.zeros(len(places)), before, 0.5, level)
    return LabelledAccuracy(value, *ends, alone, before, power, len(places), len(known), level)


@dataclass(frozen=True, eq=False)
class _Sample:
    """Labelled rows and their weights, whose mean over all rows would be one."""

    right: Doubles
    weights: Doubles
    total: int
    seed: int

    def answer(
        self, corrections: Doubles, expected: float, far: float, level: float
    ) -> tuple[float, float, float]:
        """Value, lower and upper; `corrections` are what the guesses say about each labelled row."""
        values = self.right - corrections
        least, most = self.right.sum() / self.total, 1 - (1 - self.right).sum() / self.total
        value = float(np.clip(self.weights @ values / self.weights.sum(), least, most))
        near_tail, far_tail = (1 - level) * (1 - far), (1 - level) * far
        lowers, uppers = self._draws(values)
        lower, low = np.quantile(lowers, [near_tail, far_tail])
        upper, high = np.quantile(uppers, [1 - near_tail, 1 - far_tail])
        # An accuracy above the expected one is refused where the labels are too low for it at the near tail,
        # and one below it where they are too high; on its far side each has the far tail only.
        upper = upper if expected <= upper else min(expected, high)
        lower = lower if expected >= lower else max(expected, low)
        # Rows were drawn without replacement: what is labelled is known for good.
        shrink = (1 - len(values) / self.total) ** 0.5
        ends = np.clip([value + shrink * (end - value) for end in (lower, upper)], least, most)
        return value, min(value, float(ends[0])), max(value, float(ends[1]))

    def _draws(self, values: Doubles) -> tuple[Doubles, Doubles]:
        """Accuracies under random weights of the rows, with an imagined wrong row and with a right one."""
        generator = np.random.default_rng(self.seed)
        count = len(values)
        draws = min(DRAWS, max(DRAWS // 5, 10 * _MOST_VALUES // count))
        columns = np.stack([self.weights * values, self.weights], axis=1)
        block = max(1, _MOST_VALUES // count)
        parts = [
            generator.standard_exponential((min(block, draws - start), count)) @ columns
            for start in range(0, draws, block)
        ]
        tops, bottoms = np.concatenate(parts).T
        imagined = generator.gamma(IMAGINED, size=draws)
        return tops / (bottoms + imagined), (tops + imagined) / (bottoms + imagined)


def _power(right: Doubles, apart: Doubles, weights: Doubles) -> float:
    """Lambda: the slope of right on the guesses, by weights squared, which the variance is made of."""
    if len(right) < FEWEST_TO_TUNE:
        return 0.0
    shares = weights**2 / (weights**2).sum()
    centred = apart - shares @ apart
    variance = float(shares @ centred**2)
    return float(np.clip(shares @ (centred * right) / variance, 0, 1)) if variance > 1e-12 else 0.0


def _weights(probabilities: Any, count: int, total: int) -> Doubles:
    """n / (N x probability)."""
    if probabilities is None:
        return np.ones(count)
    found = np.asarray(probabilities, np.float64)
    if found.shape != (count,):
        raise InputError(f"expected {count} probabilities, one per labelled row, got shape {found.shape}")
    if not (np.isfinite(found).all() and found.min() > 0 and found.max() <= 1):
        raise InputError(
            f"expected probabilities above 0 and at most 1, got {found.min():g} to {found.max():g}; a row "
            "that could not have been drawn cannot be labelled"
        )
    size = float((1 / found).sum())
    if count >= 10 and not total / _FACTOR < size < total * _FACTOR:
        raise InputError(
            f"expected probabilities whose inverses add up to about {total}, the number of rows, got "
            f"{size:.4g}; pass the chance of each row to be among the {count} labelled ones"
        )
    return count / (total * found)


def _checked_correct(correct: Any, count: int) -> Doubles:
    found = np.asarray(correct, np.float64)
    if found.shape != (count,):
        raise InputError(f"expected one answer per labelled row ({count}), got shape {found.shape}")
    if not np.isin(found, (0.0, 1.0)).all():
        raise InputError("expected each labelled row to be right (1) or wrong (0), got other values")
    return found


def _checked_expected(expected: float) -> float:
    if not 0 <= expected <= 1:
        raise InputError(f"expected an accuracy from 0 to 1 as `expected`, got {expected:g}")
    return float(expected)
