"""Are the monitors different from each other over many scenarios?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from assay.benchmark.figures import rank_figure
from assay.errors import InputError
from assay.notebook import Shown
from assay.statistics import check_level, critical_difference, overall_p_value, pairwise_p_values
from assay.storage import storable
from assay.table import tabled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@storable("benchmark.Ranking")
@dataclass(frozen=True, eq=False)
class Ranking(Shown):
    """Average ranks over scenarios (1 is best), the test that they are all alike, and which pairs differ.

    `p_value` is Friedman's for three guards or more and Wilcoxon's for two. `pairs` has Nemenyi's p-values
    (Wilcoxon's for two). Guards whose average ranks are further apart than `critical_difference` differ at
    `level` (Demsar 2006): at 0.95 a p-value below 0.05 counts as a difference.
    """

    measure: str
    ranks: dict[str, float]
    p_value: float
    pairs: pd.DataFrame
    critical_difference: float
    scenarios: int
    level: float

    @property
    def best(self) -> str:
        return min(self.ranks, key=lambda name: self.ranks[name])

    @property
    def differ(self) -> bool:
        """Whether the guards differ at all, at `level`."""
        return self._significant(self.p_value)

    @property
    def rivals(self) -> list[str]:
        """The guards that cannot be told apart from the best one."""
        others = [name for name in self.ranks if name != self.best]
        if not self.differ:
            return others
        against = self.pairs.set_index("guard")[self.best]
        return [name for name in others if not self._significant(against[name])]

    @property
    def alike(self) -> list[list[str]]:
        """The largest groups of neighbours by rank of which no two can be told apart, best first."""
        order = sorted(self.ranks, key=lambda name: self.ranks[name])
        if not self.differ:  # a post-hoc test says nothing where the test before it did not
            return [order]
        pairs = self.pairs.set_index("guard")
        groups: list[list[str]] = []
        for place, first in enumerate(order):
            # Of neighbours by rank the outermost two differ most.
            against = pairs[first].astype(float)
            group = [name for name in order[place:] if not self._significant(against[name])]
            if len(group) > 1 and not (groups and groups[-1][-1] == group[-1]):
                groups.append(group)
        return groups

    @tabled
    def to_frame(self) -> pd.DataFrame:
        frame = pd.DataFrame({"guard": list(self.ranks), "average_rank": list(self.ranks.values())})
        return frame.sort_values("average_rank", ignore_index=True)

    def _significant(self, p_value: float) -> bool:
        return p_value < 1 - self.level

    def plot(self) -> "Figure":
        """The critical-difference diagram: guards by rank, a bar over those that do not differ."""
        return rank_figure(
            self.ranks,
            self.alike,
            f"Who wins most often? Average place by {self.measure.replace('_', ' ')} over {self.scenarios} "
            "scenarios (1 is best),\nhowever much is won; "
            f"a bar joins guards that cannot be told apart (all alike: p = {self.p_value:.2g})",
        )


def ranking(table: pd.DataFrame, measure: str, level: float) -> Ranking:
    """Rank the guards of a result's table; ties share their average rank."""
    check_level(level)
    values = table.pivot(index="scenario", columns="guard", values=measure)
    values = values[list(dict.fromkeys(table["guard"]))].dropna()
    names, count = list(values.columns), len(values)
    if len(names) < 2 or count < 2:
        raise InputError(
            f"expected at least two guards and two scenarios with a {measure} to rank, got {len(names)} and "
            f"{count}; run the benchmark on more"
        )
    ranks = values.rank(axis=1, ascending=False).mean()
    pairs = pd.DataFrame(pairwise_p_values(values.to_numpy()), columns=names)
    pairs.insert(0, "guard", names)
    return Ranking(
        measure,
        {str(name): float(rank) for name, rank in ranks.items()},
        overall_p_value(values.to_numpy()),
        pairs,
        critical_difference(count, len(names), level),
        count,
        level,
    )
