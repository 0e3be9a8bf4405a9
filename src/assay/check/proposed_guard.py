"""The guard that a check proposes, and the single monitor to compare it with."""

from dataclasses import dataclass

import pandas as pd

from assay.benchmark import BenchmarkResult

PROPOSED = "default guard"
"""Its name among the guards of a check."""


@dataclass(frozen=True)
class Rival:
    """The best single monitor: chosen on one half of the faults, and measured on the other, as is the
    proposed guard, which nothing had to choose."""

    name: str
    mcc: float
    proposed_mcc: float
    scenarios: int
    monitors: int

    @property
    def words(self) -> str:
        better = "more" if self.proposed_mcc > self.mcc else "no more"
        return (
            f"That is {better} than a single monitor gives: {self.name}, the best of {self.monitors} on one "
            f"half of the faults, reaches {self.mcc:.2f} on the {self.scenarios} scenarios of the other, "
            f"the {PROPOSED} {self.proposed_mcc:.2f}."
        )


def rival(result: BenchmarkResult) -> Rival | None:
    """The best single monitor; None without one, or with a single fault, which makes no halves."""
    singles = result.table[result.table["guard"] != PROPOSED]
    choosing = _in_choosing_half(result.table)
    if singles.empty or choosing.all():
        return None
    means = singles[choosing[singles.index]].groupby("guard", sort=False)["specific_mcc"].mean()
    name = str(means.idxmax())
    other = result.table[~choosing]
    measured = other.groupby("guard")["specific_mcc"].mean()
    return Rival(
        name,
        float(measured[name]),
        float(measured[PROPOSED]),
        int(other["scenario"].nunique()),
        int(singles["guard"].nunique()),
    )


def _in_choosing_half(table: pd.DataFrame) -> "pd.Series[bool]":
    """Every second fault of each category, with all its severities: they are alike."""
    faults = table["scenario"].str.replace(r" \(\d+\)$", "", regex=True)
    numbers: dict[str, int] = {}
    for _, part in faults.groupby(table["category"], sort=False):
        start = len(numbers)  # so that categories with one fault do not all end up in the same half
        numbers |= {fault: start + place for place, fault in enumerate(part.unique())}
    return faults.map(numbers) % 2 == 0
