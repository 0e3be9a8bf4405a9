"""Two runs side by side: what became better or worse, beyond chance."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import pandas as pd

from assay.errors import InputError
from assay.notebook import Shown
from assay.statistics import Measured, difference_interval
from assay.table import tabled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BETTER, WORSE, UNCLEAR = "better", "worse", "cannot tell"
COLOURS = {BETTER: "#0072b2", WORSE: "#d55e00", UNCLEAR: "#808080"}


@dataclass(frozen=True, eq=False)
class Changes(Shown):
    """A row per measure that both runs have: old, new, their difference with its interval, and the verdict.

    The intervals hold together with 95 %: the more measures there are, the wider each. `only` names measures
    that one run has and the other has not.
    """

    title: ClassVar[str] = "What has changed?"

    table: pd.DataFrame
    only: tuple[str, ...] = ()

    @tabled
    def to_frame(self) -> pd.DataFrame:
        return self.table.copy()

    def names(self, verdict: str) -> list[str]:
        return self.table.loc[self.table["verdict"] == verdict, "measure"].tolist()

    def banner(self) -> tuple[bool | None, str]:
        """The verdict in one sentence."""
        better, worse = self.names(BETTER), self.names(WORSE)
        said = [
            f"{word}: {', '.join(names)}" for word, names in (("Worse", worse), ("Better", better)) if names
        ]
        words = "; ".join(said) or "Nothing changed beyond chance"
        return False if worse else True if better else None, f"{words}."

    def summary(self) -> str:
        words = (
            f"{len(self.table)} measures of two runs. A change counts if its whole interval lies on one "
            "side of 0; together these intervals hold with 95 %. They take the runs as independent: on the "
            "same test inputs, real changes may be smaller than they can show."
        )
        missing = f" Only one run has: {', '.join(self.only)}." if self.only else ""
        return f"{self.banner()[1]} {words}{missing}"

    def advice(self) -> str:
        """What to do about it."""
        if self.names(WORSE):
            return "Do not replace the old one before you know why these became worse."
        if self.names(BETTER):
            return "The new one may replace the old one as far as these measures go."
        return "Pass more test inputs if you need to see smaller changes."

    def plot(self) -> "Figure":
        """Every difference with its interval; what is right of 0 grew."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7, 1.0 + 0.42 * len(self.table)), layout="constrained")
        axes = figure.subplots()
        for height, row in enumerate(self.table.to_dict(orient="records")):
            colour = COLOURS[row["verdict"]]
            axes.plot([row["lower"], row["upper"]], [height, height], color=colour, linewidth=2)
            axes.plot([row["difference"]], [height], "o", color=colour)
        axes.axvline(0, color="black", linewidth=1)
        labels = [f"{row.measure}: {row.verdict}" for row in self.table.itertuples()]
        axes.set_yticks(range(len(labels)), labels)
        axes.set_ylim(len(labels) - 0.5, -0.5)
        axes.set_xlabel("new minus old, with intervals that hold together at 95 %")
        axes.grid(axis="x", alpha=0.3)
        axes.set_title("What has changed", fontsize=10)
        return figure


def changes(new: Any, old: Any) -> Changes:
    """What became better or worse between two results of one kind, beyond chance."""
    if type(new) is not type(old) or not hasattr(new, "measures"):
        raise InputError(
            f"expected two results of one kind that can be compared (of check, benchmark, monitorability, "
            f"mira or accuracy), got {type(new).__name__} and {type(old).__name__}"
        )
    before = {one.name: one for one in old.measures()}
    after = {one.name: one for one in new.measures()}
    shared = [name for name in after if name in before and after[name].known and before[name].known]
    if not shared:
        raise InputError(
            "expected two results with a measure in common, got none that both have measured; compare runs "
            "of the same guards and gates"
        )
    rows = [_row(after[name], before[name], len(shared)) for name in shared]
    return Changes(pd.DataFrame(rows), tuple(sorted((set(before) | set(after)) - set(shared))))


def _row(new: Measured, old: Measured, comparisons: int) -> dict[str, object]:
    lower, upper = difference_interval(new.value, new.interval, old.value, old.interval, comparisons)
    return {
        "measure": new.name,
        "old": old.value,
        "new": new.value,
        "difference": new.value - old.value,
        "lower": lower,
        "upper": upper,
        "verdict": _verdict(lower, upper, new.less_is_better),
    }


def _verdict(lower: float, upper: float, less_is_better: bool) -> str:
    """
    >>> _verdict(0.1, 0.2, False), _verdict(0.1, 0.2, True), _verdict(-0.1, 0.2, False)
    ('better', 'worse', 'cannot tell')
    """
    grew = 1 if lower > 0 else -1 if upper < 0 else 0
    if not grew or not math.isfinite(lower + upper):
        return UNCLEAR
    return BETTER if (grew > 0) != less_is_better else WORSE
