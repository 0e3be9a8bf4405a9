"""Many trials: does reshaping bring the class frequencies closer to operation? (Fig. 4b)"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from torch import Tensor

from assay.errors import InputError
from assay.notebook import Shown
from assay.reshaping.subset import Reshaping
from assay.storage import storable
from assay.table import tabled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@storable("ReshapingTrials")
@dataclass(frozen=True, eq=False)
class ReshapingTrials(Shown):
    """A row per trial: summed class ratio differences to operation before and after, and points kept."""

    title = "Reshaping over many trials"

    trials: pd.DataFrame

    @classmethod
    def of(cls, pairs: Iterable[tuple[Reshaping, Tensor]]) -> "ReshapingTrials":
        """From results and the labels of their operational inputs, which only experiments know."""
        rows = [_trial_row(result, labels) for result, labels in pairs]
        if not rows:
            raise InputError("expected at least one trial, got none")
        return cls(pd.DataFrame(rows))

    def summary(self) -> str:
        closer = int((self.trials["after"] < self.trials["before"]).sum())
        means = self.trials[["before", "after"]].mean()
        return (
            f"In {closer} of {len(self.trials)} trials the class frequencies of the reshaped test set are "
            "closer to operation: on average, their summed difference went from "
            f"{means['before']:.3f} to {means['after']:.3f}."
        )

    @tabled
    def to_frame(self) -> pd.DataFrame:
        return self.trials.copy()

    def plot(self) -> "Figure":
        """Fig. 4b; points above the diagonal came closer."""
        from assay.reshaping.figures import trials_figure

        return trials_figure(self.trials)


def _trial_row(result: Reshaping, operational_labels: Tensor) -> dict[str, float]:
    frequencies = result.class_frequencies()
    classes = max(len(frequencies), int(operational_labels.max()) + 1)
    outside = np.bincount(operational_labels.numpy(), minlength=classes) / len(operational_labels)

    def difference(name: str) -> float:
        inside = np.zeros(classes)
        inside[: len(frequencies)] = frequencies[name]
        return float(np.abs(outside - inside).sum())

    return {
        "before": difference("before"),
        "after": difference("after"),
        "points": float(len(result.kept)),
        "kept": float(result.number_kept),
        "gap": result.gap,
        "seconds": result.seconds,
    }
