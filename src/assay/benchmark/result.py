"""BenchmarkResult: every measure, and which monitor to ship."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pandas as pd

from assay.benchmark.example_figures import examples_figures
from assay.benchmark.examples import Examples
from assay.benchmark.figures import category_figure, cost_figure
from assay.benchmark.ranking import Ranking, ranking
from assay.notebook import Shown
from assay.statistics import Measured, normal_interval
from assay.storage import storable
from assay.table import tabled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURES = ("mcc", "fpr", "fnr", "precision", "recall", "f1", "auroc")

REASON = "reason_"
"""Columns of the table: the share of alarms on faults that a member raised."""

FAINT = 0.1
"""A mean MCC below this is of little use, however certain it is to be above 0."""

COLUMNS = (
    *("guard", "scenario", "category", "severity"),
    *(f"specific_{name}" for name in MEASURES),
    *(f"overall_{name}" for name in MEASURES),
    *("model_mcc", "system_mcc", "model_seconds", "monitor_seconds", "monitor_bytes"),
)


ON_INPUTS = ("rows", *(f"input_{name}" for name in MEASURES))
"""More columns where inputs have several predictions."""


@storable("BenchmarkResult")
@dataclass(frozen=True, eq=False)
class BenchmarkResult(Shown):
    """A row per guard and scenario.

    `table` has everything measured, with intervals at `level` as `_lower` and `_upper` (percentile bootstrap
    over rows; DeLong for AUROC); `to_frame` has the columns most people want. `errors` are standard errors of
    each guard's mean specific MCC, over rows (`MeanMcc`). A result put together from the tables of others has
    none, and takes the means of its scenarios' intervals, which are wider.
    """

    table: pd.DataFrame
    level: float = 0.95
    errors: dict[str, float] | None = None
    examples: Examples | None = None
    """Inputs that the best guard and the first one got wrong, of scenarios that were run for this result;
    None where inputs are neither images nor texts."""

    title: ClassVar[str] = "Which monitor to ship"

    @tabled
    def to_frame(self) -> pd.DataFrame:
        return self.table[[*COLUMNS, *(name for name in ON_INPUTS if name in self.table)]].copy()

    @property
    def guards(self) -> list[str]:
        return list(dict.fromkeys(self.table["guard"]))

    @tabled
    def by_category(self, measure: str = "specific_mcc") -> pd.DataFrame:
        """The mean of a measure by guard and category, and over all scenarios."""
        wide = self.table.pivot_table(index="guard", columns="category", values=measure, sort=False)
        wide["all"] = self.table.groupby("guard")[measure].mean()
        return wide.loc[self.guards].reset_index().rename_axis(None, axis=1)

    @tabled
    def by_reason(self) -> pd.DataFrame:
        """Of the alarms on faults by guards of several members, the mean share in which each member had the
        most evidence, by guard and category; without rows if there is no such guard."""
        names = [name for name in self.table.columns if name.startswith(REASON)]
        several = self.table.dropna(subset=names, how="all") if names else self.table.iloc[:0]
        shares = several.groupby(["guard", "category"], sort=False)[names].mean().reset_index()
        return shares.rename(columns={name: name.removeprefix(REASON) for name in names})

    @tabled
    def by_guard(self) -> pd.DataFrame:
        """A row per guard: mean detection and its interval, effect on the system, and cost.

        `system_change` is the relative change of MCC by the monitor, on untouched inputs (the paper's
        Table V) and on all; seconds are per input (Table VI), bytes as kept (Table VII).
        """
        rows = []
        for name in self.guards:
            part = self.table[self.table["guard"] == name]
            lower, upper = self.interval(name)
            rows.append(
                {
                    "guard": name,
                    "specific_mcc": float(part["specific_mcc"].mean()),
                    "specific_mcc_lower": lower,
                    "specific_mcc_upper": upper,
                    "specific_auroc": float(part["specific_auroc"].mean()),
                    "overall_mcc": float(part["overall_mcc"].mean()),
                    **self._on_inputs(part),
                    "false_alarms": float(part["clean_false_alarms"].mean()),
                    "clean_model_mcc": float(part["clean_model_mcc"].mean()),
                    "clean_system_mcc": float(part["clean_system_mcc"].mean()),
                    "clean_system_change": _relative_change(part, "clean_model_mcc", "clean_system_mcc"),
                    "system_change": _relative_change(part, "model_mcc", "system_mcc"),
                    "model_seconds": float(part["model_seconds"].mean()),
                    "monitor_seconds": float(part["monitor_seconds"].mean()),
                    "model_bytes": int(part["model_bytes"].iloc[0]),
                    "monitor_bytes": int(part["monitor_bytes"].iloc[0]),
                }
            )
        return pd.DataFrame(rows)

    def _on_inputs(self, part: pd.DataFrame) -> dict[str, float]:
        """How well alarms on whole inputs do, where inputs have several predictions."""
        names = [name for name in ("input_mcc", "input_auroc", "input_fpr") if name in self.table]
        return {name: float(part[name].mean()) for name in names}

    def interval(self, guard: str) -> tuple[float, float]:
        """The interval, at `level`, of the guard's mean specific MCC: how much it varies with the rows."""
        part = self.table[self.table["guard"] == guard]
        if self.errors is None:
            return float(part["specific_mcc_lower"].mean()), float(part["specific_mcc_upper"].mean())
        mean = float(part["specific_mcc"].mean())
        return normal_interval(mean, self.errors[guard], self.level, smallest=-1.0, largest=1.0)

    def ranking(self, measure: str = "specific_mcc", level: float = 0.95) -> Ranking:
        """Friedman's test over the scenarios with Nemenyi's post-hoc test."""
        return ranking(self.table, measure, level)

    def with_examples(self, examples: Examples) -> "BenchmarkResult":
        """The same with what the best guard and the first one got wrong."""
        return replace(self, examples=examples.of_guards([self.best, self.guards[0]]))

    @property
    def best(self) -> str:
        """The guard with the highest mean specific MCC."""
        return self._by_mcc()[0]

    def summary(self) -> str:
        facts = self.by_guard().set_index("guard")
        best, count = facts.loc[self.best], self.table["scenario"].nunique()
        words = (
            f"Over {count} scenarios {self.best} separates faulty from good inputs best: its alarms "
            f"correlate with the faults by {best['specific_mcc']:.2f} on average (MCC; 0 is guessing, 1 is "
            f"perfect), at {best['false_alarms']:.0%} false alarms on good inputs. "
        )
        more = (self._whole_inputs(facts), self._chance(facts), self._rivals(), self._effect(facts))
        return words + " ".join(filter(None, (*more, self._reasons())))

    def measures(self) -> list[Measured]:
        """What two benchmarks are compared by: the mean specific MCC of every guard."""
        means = self.by_guard().set_index("guard")["specific_mcc"]
        return [
            Measured(f"mean MCC of {name}", float(means[name]), self.interval(name)) for name in self.guards
        ]

    def advice(self) -> str:
        """What to do with the ranking."""
        return (
            "Ship the cheapest guard that cannot be told apart from the best, look in the first figure for "
            "kinds of fault that it misses (near 0), and guard against those by other means."
        )

    def _chance(self, facts: pd.DataFrame) -> str:
        sure = facts["specific_mcc_lower"] > 0
        faint = sure & (facts["specific_mcc"] < FAINT)
        if not sure.any():
            return "No monitor did better than chance: do not rely on any of them for these faults."
        findings = []
        if not sure.all():
            findings.append(f"of the {len(facts)} monitors {(~sure).sum()} did no better than chance")
        if faint.any():
            findings.append(f"{faint.sum()} did better than chance, but hardly (a mean MCC below {FAINT})")
        weak = self.by_category().set_index("guard").drop(columns="all").max()
        if blind := [str(category) for category in weak.index[weak < FAINT]]:
            findings.append(f"no monitor sees {' or '.join(blind)} (best MCC below {FAINT})")
        words = "; ".join(findings)
        return f"{words[0].upper()}{words[1:]}." if words else ""

    def _whole_inputs(self, facts: pd.DataFrame) -> str:
        if "input_mcc" not in facts:
            return ""
        best = facts.loc[self.best]
        return (
            f"These are figures of {int(self.table['rows'].sum() / len(self.table)):,} predictions per "
            f"scenario; on whole inputs its alarms correlate with the faults by {best['input_mcc']:.2f}, at "
            f"{best['input_fpr']:.0%} false alarms."
        )

    def _rivals(self) -> str:
        if len(self.guards) < 2 or self.table["scenario"].nunique() < 5:
            return "Too few guards or scenarios were run to tell whether the order is due to chance."
        ranked = self.ranking()
        if not ranked.differ:
            words = f"The monitors do not differ beyond chance (p = {ranked.p_value:.2g}): choose by cost."
        elif not ranked.rivals:
            words = f"{ranked.best} ranks above every other monitor, beyond chance."
        else:
            rivals = ", ".join(ranked.rivals)
            words = f"{ranked.best} ranks first, but cannot be told apart from {rivals}: choose by cost."
        return words if ranked.best == self.best else f"{words} {self._two_questions(ranked.best)}"

    def _two_questions(self, first: str) -> str:
        """Why the chart of ranks has another guard in front."""
        return (
            f"Means and ranks answer two questions: {self.best} wins most on average, while {first} has the "
            "best average place, which counts how often a guard wins, however little."
        )

    def _reasons(self) -> str:
        """Who raised the alarms of the best guard that has several members."""
        shares = self.by_reason()
        if shares.empty:
            return ""
        name = next(name for name in self._by_mcc() if name in set(shares["guard"]))
        means = shares[shares["guard"] == name].drop(columns=["guard", "category"]).mean().dropna()
        said = ", ".join(f"{member} {share:.0%}" for member, share in means.sort_values()[::-1].items())
        return f"Of the alarms of {name} on faults, its members raised: {said}."

    def _by_mcc(self) -> list[str]:
        """The guards, the best first."""
        means = self.table.groupby("guard")["specific_mcc"].mean()
        return sorted(self.guards, key=lambda name: -means[name])

    def _effect(self, facts: pd.DataFrame) -> str:
        best = facts.loc[self.best]
        verb = "lowers" if best["clean_system_change"] < 0 else "raises"
        share = best["monitor_seconds"] / (best["model_seconds"] + best["monitor_seconds"])
        return (
            f"On good inputs, cancelling answers under alarm {verb} the system's MCC by "
            f"{abs(best['clean_system_change']):.0%}; the monitor takes {share:.0%} of the time and "
            f"keeps {best['monitor_bytes'] / 1000:,.1f} kB."
        )

    def plot(self) -> "Figure":
        """Mean specific MCC of every guard, by category."""
        return category_figure(self.by_category())

    def figures(self) -> "list[Figure]":
        drawn = [self.plot(), cost_figure(self.by_guard())]
        if len(self.guards) > 1 and self.table["scenario"].nunique() > 1:
            drawn.append(self.ranking().plot())
        if self.examples is not None and len(self.examples.table):
            names = dict.fromkeys([self.guards[0], self.best])
            drawn += [figure for name in names for figure in examples_figures(self.examples, name)]
        return drawn


def _relative_change(part: pd.DataFrame, before: str, after: str) -> float:
    """Relative change of the mean; NaN if it was 0."""
    start = float(part[before].mean())
    return float(part[after].mean() - start) / abs(start) if start else float(np.nan)
