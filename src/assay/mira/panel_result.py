"""Monitorability: how well failures should be visible, and which monitor of which layer sees them best."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import pandas as pd

from assay.mira.panel import OUTPUT, best_of, best_place, mixtures, monitor_means
from assay.mira.panel_figures import class_detection_figure, panel_figure
from assay.notebook import Shown
from assay.statistics import Measured
from assay.storage import storable
from assay.table import tabled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@storable("Monitorability")
@dataclass(frozen=True, eq=False)
class Monitorability(Shown):
    """`score` is the mean over the panel of the best monitor's AUROC: 0.5 is guessing, 1 is perfect.

    `lower` and `upper` (at `level`) allow for other test inputs and for other pseudo-unknowns. `table` has a
    row per pseudo-unknown, layer and monitor: auroc, lower, upper. `per_class` has a row per class that the
    network predicts: how well the best monitor tells unknown inputs that end there from known ones, and how
    well the class itself would be noticed if it were unknown (`left_out`). `left_out` names what could not
    take part, and why.
    """

    title: ClassVar[str] = "Will this network's failures be visible?"

    score: float
    lower: float
    upper: float
    level: float
    accuracy: float
    inputs: int
    fitted_rows: int
    table: pd.DataFrame
    per_class: pd.DataFrame
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def best_monitor(self) -> str:
        """The monitor to ship: the first of `per_monitor`."""
        return best_place(self.table)[1]

    @property
    def best_layer(self) -> str:
        """The layer that the best monitor reads: "output" if it reads the logits."""
        return best_place(self.table)[0]

    @property
    def per_monitor(self) -> pd.DataFrame:
        """A row per monitor and layer, best first: its mean AUROC over what was made of inputs, and the
        least one."""
        return monitor_means(self.table)

    @property
    def per_layer(self) -> pd.DataFrame:
        """A row per layer, best first: the score that its own monitors would give."""
        best = mixtures(self.table).groupby(["layer", "pseudo_unknown"], sort=False)["auroc"].max()
        frame = best.groupby("layer", sort=False).mean().rename("score").reset_index()
        return frame.sort_values("score", ascending=False, ignore_index=True)

    @tabled
    def to_frame(self) -> pd.DataFrame:
        """A row per pseudo-unknown, layer and monitor."""
        return self.table

    def summary(self) -> str:
        best = best_of(self.table)
        where = "its logits" if self.best_layer == OUTPUT else f"layer {self.best_layer}"
        hardest = str(best.idxmin()).replace("_", " ")
        words = (
            f"Monitorability is {self.score:.3f} ({self.level:.0%} interval {self.lower:.3f} to "
            f"{self.upper:.3f}): the mean AUROC with which the best monitor tells {self.inputs:,} known "
            f"inputs from {len(best)} kinds of inputs that make no sense; 0.5 is guessing. Ship "
            f"{self.best_monitor} on {where}: its own mean is {self.per_monitor['auroc'].iloc[0]:.3f}. The "
            f"hardest kind is {hardest} ({best.min():.3f})."
        )
        return " ".join([words, *(f"Left out: {name}: {why}." for name, why in self._reasons())])

    def measures(self) -> list[Measured]:
        """What two results are compared by."""
        return [Measured("monitorability", self.score, (self.lower, self.upper))]

    def advice(self) -> str:
        """Which monitor and layer to take, and what they will not see."""
        where = "the logits" if self.best_layer == OUTPUT else f"layer {self.best_layer}"
        return (
            f"Watch {where} with {self.best_monitor}. Kinds of input on which the figure shows no monitor "
            "far above 0.5 will pass unseen: guard against those by other means."
        )

    def plot(self) -> "Figure":
        """The best monitor's AUROC on every pseudo-unknown."""
        return panel_figure(self.table, self.score, (self.lower, self.upper))

    def figures(self) -> list["Figure"]:
        """The panel, and the classes."""
        return [self.plot(), class_detection_figure(self.per_class, self.best_monitor)]

    def _reasons(self) -> list[tuple[str, str]]:
        return [(name, why.rstrip(".")) for name, why in self.left_out.items()]
