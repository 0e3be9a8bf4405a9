"""Have only the frequencies of the classes changed? Then the accuracy follows from the reference."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from assay.accuracy.set_counter import Whole
from assay.storage import storable
from assay.volatility.certainty import Doubles

STEPS = 60
"""Steps of expectation maximisation; the frequencies are known to a few per mille after that."""
DRAWS = 100
"""Bootstrap draws, for the p-value and the interval."""
PRIOR_ROWS = 5.0
"""Weight of what all classes have in common, in rows. With few rows per class a cell without a row of its own
class would else be put down to a class that is mistaken for it, and the accuracy would come out too low."""
ROWS_PER_CLASS = 50
"""Reference rows per class, on average, below which the question is not asked: with 23 per class, half of the
faults on the development networks passed for a change of frequencies."""
MOST_CLASSES = 100
"""With more, the question is not asked: time and memory grow with their square."""


@dataclass(frozen=True)
class ClassMix:
    """The class frequencies that explain a set best, and whether they explain it."""

    frequencies: Doubles
    p_value: float
    value: float
    lower: float
    upper: float


@storable("accuracy.ClassMixModel")
@dataclass(frozen=True, eq=False)
class ClassMixModel:
    """Reference rows by class and cell (predicted class, confidence, distance), and how many are right.

    If only class frequencies q changed, cells are as frequent as sum_y q(y) P(cell | y). The q that fits best
    is found by expectation maximisation (Saerens et al. 2002); the fit is judged by Pearson's statistic with
    the variance of both samples, against draws of both samples from the fitted model; the accuracy realised
    on the set is sum_y q(y) accuracy(y), with an interval from the same draws.
    """

    table: Doubles
    right: Doubles
    """Right answers per class."""

    @classmethod
    def fitted(cls, cells: Whole, labels: Whole, correct: Doubles, shape: tuple[int, int]) -> Self:
        """From the cell, the label and the correctness of every row; shape is (classes, cells)."""
        table = np.zeros(shape)
        np.add.at(table, (labels, cells), 1)
        right = np.bincount(labels, weights=correct, minlength=shape[0])
        return cls(table, right.astype(np.float64))

    def explained(self, counts: Doubles, level: float, seed: int = 0) -> ClassMix:
        """How well class frequencies alone explain these counts of cells."""
        rows = int(counts.sum())
        frequencies, shares, misfit = _fit(self.table[None], counts[None])
        mixed = frequencies[0] @ shares[0]
        accuracy = self._accuracy(self.right, self.table.sum(axis=1))
        generator = np.random.default_rng(seed)
        per_class = self.table.sum(axis=1).astype(int)
        tables = np.stack([generator.multinomial(per_class, shares[0]) for _ in range(DRAWS)]).astype(float)
        drawn = generator.multinomial(rows, mixed / mixed.sum(), DRAWS).astype(float)
        theirs, _, misfits = _fit(tables, drawn)
        rights = generator.binomial(per_class, accuracy, (DRAWS, len(accuracy))).astype(float)
        estimates = (theirs * self._accuracy(rights, per_class.astype(float))).sum(axis=1)
        value = min(1.0, float(frequencies[0] @ accuracy))
        realised = generator.binomial(rows, value, DRAWS) / rows
        tails = [(1 - level) / 2, (1 + level) / 2]
        below, above = np.quantile(realised - estimates, tails)
        return ClassMix(
            frequencies[0],
            float((1 + (misfits >= misfit[0]).sum()) / (1 + DRAWS)),
            value,
            float(np.clip(value + below, 0, value)),
            float(np.clip(value + above, value, 1)),
        )

    def _accuracy(self, right: Doubles, rows: Doubles) -> Doubles:
        """Per class, drawn towards the mean by one row, so that rare classes are not taken at their word."""
        mean = self.right.sum() / self.table.sum()
        return np.asarray((right + mean) / (rows + 1))


def _fit(tables: Doubles, counts: Doubles) -> tuple[Doubles, Doubles, Doubles]:
    """Frequencies (B, classes), P(cell | class) (B, classes, cells) and misfit (B,)."""
    totals = tables.sum(axis=2, keepdims=True)
    shares = (tables + PRIOR_ROWS * _prior(tables)) / (totals + PRIOR_ROWS)
    rows = counts.sum(axis=1, keepdims=True)
    present = totals[:, :, 0] > 0  # a class that the reference lacks explains nothing
    frequencies = present / present.sum(axis=1, keepdims=True)
    for _ in range(STEPS):
        mixed = np.einsum("by,byc->bc", frequencies, shares)
        ratio = np.divide(counts, mixed, out=np.zeros_like(counts), where=mixed > 0)
        frequencies = frequencies * np.einsum("byc,bc->by", shares, ratio) / rows
    wanted = rows * np.einsum("by,byc->bc", frequencies, shares)
    spread = shares * (1 - shares) / np.maximum(totals, 1)
    variance = wanted + rows**2 * np.einsum("by,byc->bc", frequencies**2, spread) + 0.5
    return frequencies, shares, ((counts - wanted) ** 2 / variance).sum(axis=1)


def _prior(tables: Doubles) -> Doubles:
    """P(cell | class) with fewer numbers: P(predicted class | class), and the bins of confidence and distance
    of right and of wrong answers, whatever the class."""
    draws, classes, cells = tables.shape
    parts = tables.reshape(draws, classes, classes, cells // classes)
    predicted = parts.sum(axis=3)
    everywhere = predicted.sum(axis=1, keepdims=True) / predicted.sum(axis=(1, 2), keepdims=True)
    predicted = (predicted + 0.5 * everywhere) / (predicted.sum(axis=2, keepdims=True) + 0.5)
    right = np.eye(classes, dtype=bool)
    bins = np.where(
        right[:, :, None],
        _shares(parts[:, right].sum(axis=1))[:, None, None],
        _shares(parts[:, ~right].sum(axis=1))[:, None, None],
    )
    found = (predicted[..., None] * bins).reshape(tables.shape)
    return np.asarray(found / found.sum(axis=2, keepdims=True))


def _shares(counts: Doubles) -> Doubles:
    return np.asarray((counts + 1) / (counts + 1).sum(axis=1, keepdims=True))
