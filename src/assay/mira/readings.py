"""MIRA in both readings: as the paper's text defines it, and as its authors' code computes it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import pandas as pd

from assay.mira.figures import ranking_figure
from assay.mira.measurement import results_over
from assay.mira.result import MiraResult
from assay.mira.score import Layers, layer_group, prepared_sweep
from assay.mira.settings import AUTHORS_CODE, MiraSettings, shows_mira_options
from assay.network import Network
from assay.notebook import Shown
from assay.storage import storable
from assay.table import tabled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@storable("MiraReadings")
@dataclass(frozen=True, eq=False)
class MiraReadings(Shown):
    """The score by the paper's `text` and by its authors' `code`, of one network and layer."""

    title: ClassVar[str] = "MIRA, read in two ways"

    text: MiraResult
    code: MiraResult

    @tabled
    def to_frame(self) -> pd.DataFrame:
        """A row per reading."""
        frame = pd.concat([self.text.to_frame(), self.code.to_frame()], ignore_index=True)
        frame.insert(0, "reading", ["text", "code"])
        return frame

    def summary(self) -> str:
        scores = [
            f"{found.score:.4g} ({found.interval[0]:.4g} to {found.interval[1]:.4g})"
            for found in (self.text, self.code)
        ]
        return (
            f"The MIRA score at layer {self.text.layer} is {scores[0]} as the paper's text has it, and "
            f"{scores[1]} as its authors' code has it: distances to the label's own class, a covariance per "
            "class, fitted on correctly classified rows. Compare scores within one reading only."
        )

    def plot(self) -> "Figure":
        return ranking_figure(self.to_frame().rename(columns={"reading": "network"}))


@shows_mira_options
def mira_readings(
    network: Network, train: Any, test: Any, layer: Layers = "penultimate", **options: Any
) -> MiraReadings:
    """`mira_score` with these options, and with `AUTHORS_CODE` over them, from the same forward passes.

    The authors' public code (utils/MIRA.py, May 2025) measures the distance to the true label's class, with a
    covariance per class, fitted on correctly classified training rows, and clamps perturbed inputs to [0, 1];
    for that pass `low=0, high=1`, which both readings then heed.
    """
    settings = MiraSettings(**options)
    code = MiraSettings(**(options | AUTHORS_CODE))
    sweep = prepared_sweep(network, train, test, [layer_group(layer)], settings, code)
    return MiraReadings(*results_over(sweep, settings))
