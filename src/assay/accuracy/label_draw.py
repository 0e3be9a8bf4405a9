"""Which operational rows to label, drawn by doubt with known probabilities."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from assay.accuracy.guesses import checked_guesses
from assay.accuracy.predictions import Predictions, Whole
from assay.errors import InputError
from assay.notebook import Shown
from assay.storage import storable
from assay.table import tabled
from assay.volatility.certainty import Doubles

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOUBT_SHARE = 0.1
"""The share of the budget that follows doubt. The rest is the same for all rows, so that none counts more
than 10 / 9: an attacked network is sure and wrong, and the interval must allow for such rows unseen."""


@storable("accuracy.RowsToLabel")
@dataclass(frozen=True, eq=False)
class RowsToLabel(Shown):
    """Rows to label and the probability with which each was drawn; needed again when the labels are there."""

    title: ClassVar[str] = "Rows to label"

    rows: Whole
    """Places in the operational set, ascending."""
    probabilities: Doubles
    """Of each of these rows: the chance to be among the rows drawn."""
    guesses: Doubles
    """How likely each of these rows was taken to be right."""
    total: int
    """Rows in the operational set."""

    def __len__(self) -> int:
        return len(self.rows)

    @tabled
    def to_frame(self) -> pd.DataFrame:
        """A row per row to label: its place, the probability it was drawn with, and the guess."""
        return pd.DataFrame({"row": self.rows, "probability": self.probabilities, "guess": self.guesses})

    def summary(self) -> str:
        least, most = (float(end) for end in (self.probabilities.min(), self.probabilities.max()))
        return (
            f"Label these {len(self)} of {self.total} rows, all of them, whatever the network answered. Each "
            f"was drawn with a probability between {least:.2%} and {most:.2%}, rows in doubt more often."
        )

    def plot(self) -> "Figure":
        from assay.accuracy.figures import label_draw_figure

        return label_draw_figure(self.to_frame(), len(self) / self.total)


def rows_to_label(trace: Any, budget: int, *, guesses: Any = None, seed: int = 0) -> RowsToLabel:
    """`budget` rows of the operational set whose labels say most about its accuracy.

    `trace`: a Trace, or probabilities. `guesses`: how likely each row is right, in [0, 1], if you know better
    than the network's confidence. A tenth of the budget follows sqrt(guess x (1 - guess)), which would be
    best if the guesses were right (Neyman 1934); the rest is the same for all rows, in case they are wrong.
    In the order of their guesses the rows are cut into `budget` stretches of equal probability, and one is
    drawn from each (Deville 1998): each probability is exact, and every guess has its share in the sample.
    """
    predictions = Predictions.of(trace)
    total = len(predictions)
    if not 1 <= budget <= total:
        raise InputError(f"expected a budget of 1 to {total} rows, got {budget}; there are {total} rows")
    known = predictions.confidence if guesses is None else checked_guesses(guesses, total)
    return drawn_rows(known, budget, seed)


def drawn_rows(guesses: Doubles, budget: int, seed: int) -> RowsToLabel:
    """`budget` rows, by guesses of all rows."""
    probabilities = inclusion_probabilities(guesses, budget)
    generator = np.random.default_rng(seed)
    order = np.lexsort((generator.permutation(len(guesses)), guesses))
    drawn = np.sort(order[places_drawn(probabilities[order], generator.uniform(size=budget))])
    return RowsToLabel(drawn, probabilities[drawn], guesses[drawn], len(guesses))


def inclusion_probabilities(guesses: Doubles, budget: int) -> Doubles:
    """The chance of each row to be drawn; they add up to the budget, and none exceeds one."""
    doubt = np.sqrt(guesses * (1 - guesses))
    even = np.full(len(guesses), 1 / len(guesses))
    sizes = (1 - DOUBT_SHARE) * even + DOUBT_SHARE * doubt / doubt.sum() if doubt.any() else even
    found = budget * sizes
    # Where a row would be drawn more than once it is drawn for certain, and the others share what is left.
    while (found > 1).any():
        certain = found >= 1
        found[certain] = 1.0
        found[~certain] = (budget - certain.sum()) * sizes[~certain] / sizes[~certain].sum()
    return found


def places_drawn(probabilities: Doubles, chances: Doubles) -> Whole:
    """One place from each stretch of the cumulated probabilities of length one; `chances`: uniform, one each.

    A row on the border of two stretches is drawn at most once (Deville's systematic sampling). Steps from one
    random start would do for the probabilities, but give few different samples, all bad for some sets.
    """
    ends = np.minimum(np.cumsum(probabilities), len(chances))
    ends[-1] = len(chances)  # which the sum may miss by a rounding error
    found = np.empty(len(chances), np.int64)
    border, before, after = -1, 0.0, 0.0  # the row on the border, and its shares of the stretches it touches
    for stretch, chance in enumerate(chances):
        drawn_already = stretch > 0 and found[stretch - 1] == border
        again = 0.0 if drawn_already or before >= 1 else after / (1 - before)
        if chance < again:
            found[stretch] = border
        else:
            point = stretch + after + (1 - after) * (chance - again) / (1 - again)
            found[stretch] = min(np.searchsorted(ends, point, side="right"), len(ends) - 1)
        border = int(np.searchsorted(ends, stretch + 1, side="left"))
        start = ends[border] - probabilities[border]
        before, after = max(0.0, stretch + 1 - max(start, stretch)), max(0.0, ends[border] - (stretch + 1))
    return found
