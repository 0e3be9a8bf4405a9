"""Accuracy and log VC through training: the paper's Figure 6, and stopping early on log VC."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from assay.errors import InputError
from assay.network import Network
from assay.notebook import Shown
from assay.storage import storable
from assay.table import tabled
from assay.trace import Trace
from assay.volatility.certainty import margins
from assay.volatility.comparison import window_log_vcs
from assay.volatility.probabilities import checked_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@storable("TrainingRecord")
@dataclass(eq=False)
class TrainingRecord(Shown):
    """Accuracy and log VC on random validation sets after each epoch; ten sets of 1,000, as in the paper.

    Every epoch is measured on the same sets, so that epochs differ by the network alone.
    """

    title: ClassVar[str] = "Accuracy and volatility through training"

    sets: int = 10
    size: int = 1000
    seed: int = 0
    points: list[list[float]] = field(default_factory=list)
    """A row per epoch and set: epoch, set, accuracy (NaN without labels), log VC."""

    def record(self, epoch: int, validation: Trace) -> float:
        """Measure one epoch from a Trace of the validation rows; returns the mean log VC."""
        if len(validation) < self.size:
            raise InputError(
                f"expected at least {self.size} validation rows (one set), got {len(validation)}; "
                "pass more or record in smaller sets: TrainingRecord(size=...)"
            )
        certainties = margins(checked_rows(validation))
        correct = np.full(len(validation), np.nan)
        if validation.labels is not None:
            correct = validation.correct.double().numpy()
        generator = np.random.default_rng(self.seed)
        chosen = [generator.choice(len(validation), self.size, replace=False) for _ in range(self.sets)]
        found = [
            [
                float(epoch),
                float(number),
                float(correct[rows].mean()),
                window_log_vcs(certainties[rows], self.size)[0],
            ]
            for number, rows in enumerate(chosen)
        ]
        self.points.extend(found)
        return float(np.mean([point[3] for point in found]))

    def callback(
        self, network: Network, validation: Any, patience: int | None = None
    ) -> Callable[[int], bool]:
        """A plain function to call after each epoch with its number; True means: stop.

        `validation` is what `network.observe` takes. Without `patience` it only records.
        """

        def after_epoch(epoch: int) -> bool:
            self.record(epoch, network.observe(validation))
            return patience is not None and self.stalled(patience)

        return after_epoch

    def stalled(self, patience: int) -> bool:
        """Whether mean log VC has reached no new low for `patience` epochs."""
        by_epoch = self.to_frame().groupby("epoch")["log_vc"].mean().to_numpy()
        return len(by_epoch) > patience and bool(by_epoch[-patience:].min() >= by_epoch[:-patience].min())

    def correlation(self, above: float = 0.5) -> float:
        """Pearson correlation of accuracy and log VC over the sets with accuracy above the given one."""
        frame = self.to_frame()
        frame = frame[frame["accuracy"] > above]
        if len(frame) < 3 or frame["accuracy"].nunique() < 2:
            return float("nan")
        return float(np.corrcoef(frame["accuracy"], frame["log_vc"])[0, 1])

    @tabled
    def to_frame(self) -> pd.DataFrame:
        frame = pd.DataFrame(self.points, columns=["epoch", "set", "accuracy", "log_vc"], dtype=float)
        return frame.astype({"epoch": int, "set": int})

    def summary(self) -> str:
        means = self.to_frame().groupby("epoch")[["accuracy", "log_vc"]].mean()
        if means.empty:
            return "No epoch has been recorded yet."
        lowest = means["log_vc"].idxmin()
        return (
            f"Over {len(means)} epochs log VC went from {means['log_vc'].iloc[0]:.2f} to "
            f"{means['log_vc'].iloc[-1]:.2f} (lowest after epoch {lowest}) and accuracy from "
            f"{means['accuracy'].iloc[0]:.1%} to {means['accuracy'].iloc[-1]:.1%}; above 50 % accuracy their "
            f"correlation is {self.correlation():.2f}. Near -1, log VC may stand in for accuracy when this "
            "network is trained without validation labels."
        )

    def plot(self) -> "Figure":
        from assay.volatility.figures import training_figure

        return training_figure(self.to_frame())
