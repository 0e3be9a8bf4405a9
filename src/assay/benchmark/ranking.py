"""Are the monitors different from each other over many scenarios?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import stats

from assay.errors import InputError, MissingExtraError
from assay.storage import storable

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

    def to_frame(self) -> pd.DataFrame:
        frame = pd.DataFrame({"guard": list(self.ranks), "average_rank": list(self.ranks.values())})
        return frame.sort_values("average_rank", ignore_index=True)

    def plot(self) -> "Figure":
        """The critical-difference diagram: guards by rank, a bar over those that do not differ."""
        from matplotlib.figure import Figure

        posthocs = _posthocs()
        figure = Figure(figsize=(8, 1.4 + 0.16 * len(self.ranks)), layout="constrained")
        axes = figure.subplots()
        pairs = self.pairs.set_index("guard")
        if self.p_value >= self.alpha:
            pairs = pairs * 0 + 1.0  # a post-hoc test says nothing where the test before it did not
        posthocs.critical_difference_diagram(
            pd.Series(self.ranks),
            pairs,
            ax=axes,
            alpha=self.alpha,
            label_fmt_left="{label} ({rank:.2f}) ",
            label_fmt_right=" ({rank:.2f}) {label}",
            color_palette=dict.fromkeys(self.ranks, "#333333"),
        )
        axes.set_title(
            f"Average rank by {self.measure.replace('_', ' ')} over {self.scenarios} scenarios (1 is best);\n"
            f"a bar joins guards that cannot be told apart (all alike: p = {self.p_value:.2g})",
            fontsize=9,
        )
        return figure


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
    pairs = _posthocs().posthoc_nemenyi_friedman(values.to_numpy())
    return p, pd.DataFrame(pairs.to_numpy(), index=names, columns=names)


def _posthocs() -> Any:
    try:
        import scikit_posthocs
    except ImportError as error:
        raise MissingExtraError("scikit-posthocs", "benchmark") from error
    return scikit_posthocs
