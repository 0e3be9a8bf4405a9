"""Are the monitors different from each other over many scenarios?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import stats

from assay.benchmark.figures import rank_picture
from assay.errors import InputError
from assay.storage import storable
from assay.table import tabled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@storable("benchmark.Ranking")
@dataclass(frozen=True, eq=False)
class Ranking:
    """Average ranks over scenarios (1 is best), the test that they are all alike, and which pairs differ.

    `p_value` is Friedman's for three guards or more and Wilcoxon's for two. `pairs` holds Nemenyi's p-values
    (Wilcoxon's for two), `critical_difference` the distance of average ranks beyond which two guards differ
    at level `alpha` (Demsar 2006).
    """

    measure: str
    ranks: dict[str, float]
    p_value: float
    pairs: pd.DataFrame
    critical_difference: float
    scenarios: int
    alpha: float

    @property
    def best(self) -> str:
        return min(self.ranks, key=lambda name: self.ranks[name])

    @property
    def rivals(self) -> list[str]:
        """The guards that cannot be told from the best one."""
        if self.p_value >= self.alpha:
            return [name for name in self.ranks if name != self.best]
        against = self.pairs[self.best].to_numpy()
        names = [name for name, p in zip(self.pairs["guard"], against, strict=True) if p >= self.alpha]
        return [name for name in names if name != self.best]

    @property
    def alike(self) -> list[list[str]]:
        """The largest groups of neighbours by rank of which no two can be told apart, best first."""
        order = sorted(self.ranks, key=lambda name: self.ranks[name])
        if self.p_value >= self.alpha:  # a post-hoc test says nothing where the test before it did not
            return [order]
        pairs = self.pairs.set_index("guard")
        groups: list[list[str]] = []
        for place, first in enumerate(order):
            # Of neighbours by rank the outermost two differ most.
            against = pairs[first].astype(float)
            group = [name for name in order[place:] if against[name] >= self.alpha]
            if len(group) > 1 and not (groups and groups[-1][-1] == group[-1]):
                groups.append(group)
        return groups

    @tabled
    def to_frame(self) -> pd.DataFrame:
        frame = pd.DataFrame({"guard": list(self.ranks), "average_rank": list(self.ranks.values())})
        return frame.sort_values("average_rank", ignore_index=True)

    def plot(self) -> "Figure":
        """The critical-difference diagram: guards by rank, a bar over those that do not differ."""
        return rank_picture(
            self.ranks,
            self.alike,
            f"Average rank by {self.measure.replace('_', ' ')} over {self.scenarios} scenarios (1 is best);\n"
            f"a bar joins guards that cannot be told apart (all alike: p = {self.p_value:.2g})",
        )


def ranking(table: pd.DataFrame, measure: str, alpha: float) -> Ranking:
    """Rank the guards of a result's table; ties share their average rank."""
    values = table.pivot(index="scenario", columns="guard", values=measure)
    values = values[list(dict.fromkeys(table["guard"]))].dropna()
    names, count = list(values.columns), len(values)
    if len(names) < 2 or count < 2:
        raise InputError(
            f"expected at least two guards and two scenarios with a {measure} to rank, got {len(names)} and "
            f"{count}; run the benchmark on more"
        )
    ranks = values.rank(axis=1, ascending=False).mean()
    p_value, pairs = _tests(values)
    quantile = stats.studentized_range.ppf(1 - alpha, len(names), np.inf) / np.sqrt(2)
    critical = float(quantile * np.sqrt(len(names) * (len(names) + 1) / (6 * count)))
    pairs = pairs.rename_axis(None).rename_axis(None, axis=1)
    pairs.insert(0, "guard", names)
    return Ranking(
        measure, {str(k): float(v) for k, v in ranks.items()}, p_value, pairs, critical, count, alpha
    )


def _tests(values: pd.DataFrame) -> tuple[float, pd.DataFrame]:
    names = list(values.columns)
    columns = [values[name].to_numpy() for name in names]
    if all(np.array_equal(columns[0], column) for column in columns[1:]):
        return 1.0, pd.DataFrame(1.0, index=names, columns=names)
    if len(names) == 2:
        p = float(stats.wilcoxon(columns[0], columns[1], zero_method="zsplit").pvalue)
        return p, pd.DataFrame([[1.0, p], [p, 1.0]], index=names, columns=names)
    p = float(stats.friedmanchisquare(*columns).pvalue)
    return p, pd.DataFrame(_nemenyi(values), index=names, columns=names)


def _nemenyi(values: pd.DataFrame) -> np.ndarray[Any, Any]:
    """P-values of all pairs, from the distances of their average ranks (Demsar 2006, section 3.2.2)."""
    count, guards = values.shape
    ranks = values.rank(axis=1).mean().to_numpy()
    distances = np.abs(ranks[:, None] - ranks) / np.sqrt(guards * (guards + 1) / (6 * count))
    return np.asarray(stats.studentized_range.sf(distances * np.sqrt(2), guards, np.inf))
