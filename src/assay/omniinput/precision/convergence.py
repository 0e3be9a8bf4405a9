"""precision_convergence: how the curve settles as more of each bin is annotated (paper Fig. 5)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from assay.errors import InputError
from assay.notebook import Shown
from assay.omniinput.annotation.scores import Annotations, Scores, scores_of
from assay.omniinput.precision.curve import cumulative
from assay.omniinput.precision.precision_recall import judged_bins
from assay.omniinput.sampling.distribution import OutputDistribution
from assay.storage import storable
from assay.table import tabled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

NUMBERS = (10, 20, 30, 40, 50)


@storable("PrecisionConvergence")
@dataclass(frozen=True, eq=False)
class PrecisionConvergence(Shown):
    """Curves from a limited number of items per bin, drawn repeatedly from all items.

    `precision` and `log_recall` are (numbers, trials, thresholds); `whole_*` are the curve of all items.
    """

    title: ClassVar[str] = "How many annotations are enough"

    numbers: tuple[int, ...]
    threshold: Array
    precision: Array
    log_recall: Array
    whole_precision: Array
    whole_log_recall: Array
    most: int

    @tabled
    def to_frame(self) -> pd.DataFrame:
        """A row per number of items per bin: mean and largest difference in precision from that of all
        items."""
        apart = np.abs(self.precision - self.whole_precision)
        return pd.DataFrame(
            {
                "per_bin": self.numbers,
                "mean_difference": apart.mean(axis=(1, 2)),
                "largest_difference": apart.max(axis=2).mean(axis=1),
            }
        )

    def summary(self) -> str:
        last = self.to_frame().iloc[-1]
        first = self.to_frame().iloc[0]
        return (
            f"With {int(first['per_bin'])} annotations per bin the precision is on average "
            f"{first['mean_difference']:.3f} from that of all (up to {self.most} per bin), with "
            f"{int(last['per_bin'])} it is {last['mean_difference']:.3f}; at the worst threshold "
            f"{first['largest_difference']:.3f} and {last['largest_difference']:.3f}."
        )

    def plot(self) -> "Figure":
        """The curve of the first draw of each number, and the curve of all items, as in Fig. 5."""
        from assay.omniinput.precision.figures import convergence_figure

        return convergence_figure(self)


def precision_convergence(
    dist: OutputDistribution,
    annotations: Annotations,
    confident: str = "low",
    *,
    numbers: Sequence[int] = NUMBERS,
    trials: int = 20,
    seed: int = 0,
) -> PrecisionConvergence:
    """Curves from `numbers` of items per bin, drawn `trials` times without replacement (Fig. 5).

    From bins with fewer items all are used, so that the difference is zero there.
    """
    if not numbers or min(numbers) < 1 or trials < 1:
        raise InputError(
            f"expected positive numbers and trials, got {list(numbers)} and {trials}; raise them"
        )
    scores = scores_of(dist, annotations)
    order, _ = judged_bins(dist, scores, confident)
    generator = np.random.default_rng(seed)
    bins, log_density = len(dist.log_density), dist.log_density[order]

    def curve(part: Scores) -> tuple[Array, Array]:
        precision, log_recall, _ = cumulative(log_density, part.bin_precision(bins)[order])
        return precision, log_recall

    drawn = [[curve(_random_items(scores, number, generator)) for _ in range(trials)] for number in numbers]
    whole = curve(scores)
    edges = dist.edges[1:] if confident == "low" else dist.edges[:-1]
    return PrecisionConvergence(
        tuple(int(number) for number in numbers),
        edges[order],
        np.array([[precision for precision, _ in row] for row in drawn]),
        np.array([[log_recall for _, log_recall in row] for row in drawn]),
        *whole,
        int(np.bincount(scores.item_bins).max()),
    )


def _random_items(scores: Scores, number: int, generator: np.random.Generator) -> Scores:
    """At most `number` random items from every bin."""
    order = np.lexsort((generator.random(len(scores.item_bins)), scores.item_bins))
    sorted_bins = scores.item_bins[order]
    rank = np.arange(len(order)) - np.searchsorted(sorted_bins, sorted_bins)
    chosen = np.zeros(len(order), dtype=bool)
    chosen[order[rank < number]] = True
    return scores.of_items(chosen)
