"""Does the score track detection for these networks? Protocol: MIRA, Section 4.1 and Appendix B.5."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import pandas as pd

from assay.errors import InputError
from assay.mira.comparison import MonitorabilityComparison, compare_monitorability
from assay.mira.detection import Tuning, detection_table
from assay.mira.figures import agreement_figure
from assay.mira.settings import MiraSettings, shows_mira_options
from assay.mira.sweep import watching
from assay.network import Network
from assay.notebook import Shown
from assay.statistics import RankCorrelation, rank_correlation
from assay.storage import storable
from assay.table import tabled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@storable("MonitorabilityValidation")
@dataclass(frozen=True, eq=False)
class MonitorabilityValidation(Shown):
    """Scores from in-distribution data beside what monitors detect of unknown data.

    `detections` has a row per network, monitor and unknown set, with the AUROC and the tuned settings.
    """

    title: ClassVar[str] = "Does the score track detection?"

    comparison: MonitorabilityComparison
    detections: pd.DataFrame

    @tabled
    def to_frame(self) -> pd.DataFrame:
        """A row per network: its score, the best AUROC on each unknown set, and their mean, `best_auroc`."""
        best = self.detections.groupby(["network", "unknown"], sort=False)["auroc"].max().unstack()
        sets = list(dict.fromkeys(self.detections["unknown"]))
        frame = self.comparison.to_frame()[["network", "layer", "score", "lower", "upper", "accuracy"]]
        return frame.assign(
            **{name: best.loc[frame["network"], name].to_numpy() for name in sets},
            best_auroc=best.loc[frame["network"], sets].mean(axis=1).to_numpy(),
        )

    @property
    def correlation(self) -> RankCorrelation:
        """Spearman's correlation between score and best-of AUROC over networks."""
        frame = self.to_frame()
        return rank_correlation(frame["score"].to_numpy(), frame["best_auroc"].to_numpy())

    def summary(self) -> str:
        rank, count = self.correlation, len(self.comparison.results)
        if math.isnan(rank.value):
            return (
                f"{count} networks are too few for a rank correlation between the MIRA score and the AUROC "
                "of the best monitor; compare the columns of the table."
            )
        verdict = (
            "the score orders these networks as detection does"
            if rank.lower > 0
            else "the score orders these networks against detection: do not choose by it"
            if rank.upper < 0
            else "these networks do not show that the score tracks detection: do not choose by it alone"
        )
        return (
            f"Over {count} networks, the Spearman correlation between the MIRA score and the AUROC of the "
            f"best monitor (of ODIN, Mahalanobis and Energy, tuned on noise) is {rank.value:.2f}, 95% "
            f"interval {rank.lower:.2f} to {rank.upper:.2f}, p = {rank.p_value:.2g}: {verdict}."
        )

    def plot(self) -> "Figure":
        rank = self.correlation
        words = "Score and detection" + ("" if math.isnan(rank.value) else f": Spearman {rank.value:.2f}")
        return agreement_figure(self.to_frame(), words)


@shows_mira_options
def validate_monitorability(
    networks: Mapping[str, Network],
    train: Any,
    test: Any,
    unknown: Mapping[str, Any],
    layer: str = "penultimate",
    *,
    tuning: Tuning | None = None,
    **options: Any,
) -> MonitorabilityValidation:
    """The MIRA score of every network beside how well its failures are detected on unknown data.

    For each network ODIN, Mahalanobis and Energy are tuned on random noise (see `Tuning`) and then used to
    separate `test` from each set of `unknown` (inputs, or (inputs, labels)). The AUROC of the best monitor,
    averaged over the sets, is what the score should track. The options are those of `mira_score`
    (`assay.mira.MiraSettings`).

    Tuning costs most: with the default grid, about 180 forward passes over 1,000 inputs.
    """
    if not unknown:
        raise InputError("expected at least one unknown set, got none; pass {'name': inputs}")
    if not isinstance(layer, str):
        raise InputError(f"expected one layer to validate, got {layer!r}; pass its name")
    settings = MiraSettings(**options)
    comparison = compare_monitorability(networks, train, test, [layer], **options)
    tables = []
    for name, network in networks.items():
        table = detection_table(
            watching(network, [layer]), train, test, unknown, layer, settings, tuning or Tuning()
        )
        table.insert(0, "network", name)
        tables.append(table)
    return MonitorabilityValidation(comparison, pd.concat(tables, ignore_index=True))
