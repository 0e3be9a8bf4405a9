"""The accuracy from a few labelled operational rows, helped by guesses for all rows (prediction-powered)."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from assay.accuracy.few_labels import rows_and_probabilities
from assay.accuracy.guesses import checked_guesses, moved_to
from assay.errors import InputError
from assay.notebook import Shown
from assay.statistics import check_level
from assay.storage import storable
from assay.table import tabled
from assay.volatility.certainty import Doubles

if TYPE_CHECKING:
    from matplotlib.figure import Figure

IMAGINED = 1.0
"""Imagined rows, right for the upper end and wrong for the lower: one is the limit of Clopper and Pearson."""
IMAGINED_WITH_GUESSES = 0.5
"""The same where guesses count: values are then more than 0 and 1, and the half that is for steps goes."""
FAR_TAIL = 0.1
"""The share of the error that the end on the far side of what was expected gets."""
FEWEST_TO_TUNE = 5
"""Right rows and wrong rows among the labelled ones, from which the power of the guesses can be tuned."""
DRAWS = 10_000
"""Random weights of the labelled rows; fewer, but at least a fifth, where there are thousands of rows."""
_MOST_VALUES = 2_000_000
_FACTOR = 3.0
"""By how much the sum of weights may miss the number of rows before the probabilities must be others."""


@storable("accuracy.LabelledAccuracy")
@dataclass(frozen=True, eq=False)
class LabelledAccuracy(Shown):
    """The accuracy on all operational rows, from labels of some of them and guesses for all."""

    title: ClassVar[str] = "Accuracy from a few labels"

    value: float
    lower: float
    upper: float
    alone: tuple[float, float, float]
    """Value, lower and upper from the same labels without the guesses."""
    expected: float
    """The accuracy that was expected before there were labels; NaN if none was."""
    power: float
    """How much the guesses count, 0 to 1: the mean lambda of PPI++."""
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
        expected = "" if math.isnan(self.expected) else f"; {self.expected:.1%} was expected without labels"
        return (
            f"With {self.labelled} of {self.rows} rows labelled the accuracy is {self.value:.1%} "
            f"({self.level:.0%} interval {self.lower:.1%} to {self.upper:.1%}), whatever has changed"
            f"{expected}. From the labels alone it would be {self.alone[0]:.1%} ({self.alone[1]:.1%} to "
            f"{self.alone[2]:.1%})."
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
    `rows_to_label` gave them (or its table), or their places, which must have been drawn at random:
    uniformly, or with `probabilities`, the chance of each to be among the labelled rows. `correct`: whether
    each of them is right. `expected`: the accuracy expected without labels, if there is an expectation.

    The estimate is that of prediction-powered inference (Angelopoulos et al. 2023): what the guesses say of
    all rows, plus how far they are off on the labelled ones, weighted by their probabilities (Hajek). The
    guesses count by the factor lambda that makes the variance least (PPI++, Angelopoulos, Duchi and Zrnic
    2024), from 0 to 1; for each labelled row it is tuned on the others, so that no row flatters itself. With
    fewer than five right or five wrong rows lambda is 0.

    The interval aims at the accuracy realised on these N rows, and assumes nothing about the shift. It needs
    no normal approximation, which fails near 0 and 1: the labelled rows are reweighted at random (Bayesian
    bootstrap) with an imagined row that is right for the upper end and wrong for the lower (Gaffke 2005).
    If lambda is 0 and rows were drawn uniformly, these are the limits of Clopper and Pearson, which are never
    too short; otherwise coverage was checked by simulation (docs/accuracy-without-labels.md). All guesses are
    moved so that `expected` is their mean, and the end of the interval that points away from it gets a tenth
    of the error (Pratt 1961; Yu and Hoff 2018): the interval is shorter if the expectation was right, longer
    if it was wrong, and as valid either way, since the expectation was there before the labels.
    """
    known = checked_guesses(guesses)
    check_level(level)
    places, chances = rows_and_probabilities(rows, len(known))
    chances = chances if probabilities is None else probabilities
    sample = LabelledSample.of(correct, len(places), chances, len(known), seed)
    before = math.nan if expected is None else _checked_expected(expected)
    moved = known if expected is None else moved_to(before, known)
    return sample.accuracy(moved[places] - moved.mean(), before, level)


@dataclass(frozen=True, eq=False)
class LabelledSample:
    """Labelled rows and their weights, whose mean over all rows would be one."""

    right: Doubles
    weights: Doubles
    total: int
    seed: int

    @classmethod
    def of(cls, correct: Any, count: int, probabilities: Any, total: int, seed: int) -> "LabelledSample":
        """`count` rows of `total`, and whether each is right; `probabilities` None: drawn uniformly."""
        return cls(_checked_correct(correct, count), _weights(probabilities, count, total), total, seed)

    def accuracy(self, apart: Doubles, expected: float, level: float) -> LabelledAccuracy:
        """`apart`: the guess of each labelled row minus the mean guess of all rows; `expected` may be NaN."""
        powers = _powers(self.right, apart, self.weights)
        answer = self.answer(powers * apart, expected, level)
        alone = self.answer(np.zeros(len(apart)), math.nan, level)
        power = float(powers.mean())
        return LabelledAccuracy(*answer, alone, expected, power, len(apart), self.total, level)

    def answer(self, corrections: Doubles, expected: float, level: float) -> tuple[float, float, float]:
        """Value, lower and upper; `corrections`: what the guesses say of each labelled row."""
        values = self.right - corrections
        least, most = self.right.sum() / self.total, 1 - (1 - self.right).sum() / self.total
        value = float(np.clip(self.weights @ values / self.weights.sum(), least, most))
        # Rows were drawn without replacement: what is labelled is known for good.
        shrink = (1 - len(values) / self.total) ** 0.5
        imagined = IMAGINED_WITH_GUESSES if corrections.any() else IMAGINED
        lowers, uppers = (value + shrink * (draws - value) for draws in self._draws(values, imagined))
        ends = np.clip(_ends(lowers, uppers, expected, 1 - level), least, most)
        return value, min(value, float(ends[0])), max(value, float(ends[1]))

    def _draws(self, values: Doubles, imagined: float) -> tuple[Doubles, Doubles]:
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
        extra = self.weights.max() * generator.gamma(imagined, size=draws)
        return tops / (bottoms + extra), (tops + extra) / (bottoms + extra)


def _ends(lowers: Doubles, uppers: Doubles, expected: float, error: float) -> tuple[float, float]:
    """Lower and upper end; together they miss with a chance of at most `error`, whatever was expected."""
    if math.isnan(expected):
        return float(np.quantile(lowers, error / 2)), float(np.quantile(uppers, 1 - error / 2))
    far = FAR_TAIL * error
    near = error - far
    lower, low = np.quantile(lowers, [near, far])
    upper, high = np.quantile(uppers, [1 - near, 1 - far])
    # An accuracy above the expected one is refused if the labels are too low for it at the near tail, or too
    # high at the far tail; one below the expected the other way round. The expected one itself always stays.
    upper = upper if expected <= upper else min(expected, high)
    lower = lower if expected >= lower else max(expected, low)
    return float(lower), float(upper)


def _powers(right: Doubles, apart: Doubles, weights: Doubles) -> Doubles:
    """Lambda for each labelled row: the slope of right on guesses over the other rows, from 0 to 1, weighted
    by squared weights, of which the variance is made."""
    if min(right.sum(), len(right) - right.sum()) < FEWEST_TO_TUNE:
        return np.zeros(len(right))
    terms = weights**2 * np.stack([np.ones(len(right)), apart, apart**2, right, apart * right])
    total, guess, square, correct, product = terms.sum(axis=1, keepdims=True) - terms
    variance = square - guess**2 / total
    known = variance > 1e-9 * total
    slopes = np.divide(product - guess * correct / total, variance, out=np.zeros_like(variance), where=known)
    return np.asarray(np.clip(slopes, 0.0, 1.0))


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
