"""Check: the gates, the results behind them, and the guard and watch to ship."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import pandas as pd

from assay.benchmark import BenchmarkResult
from assay.check.figures import gates_figure
from assay.check.gate import Gate
from assay.guard import Guard
from assay.mira import MiraResult, ShuffleScore
from assay.storage import storable
from assay.table import tabled
from assay.volatility import VolatilityWatch

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@storable("Check")
@dataclass(frozen=True, eq=False)
class Check:
    """The findings of `check_network`. `guard` and `watch` are calibrated and ready to be saved and shipped.

    `monitorability` is None if it could not be measured; its gate says why. `shuffle` is not a gate but a
    second opinion, None for inputs whose values cannot be exchanged, such as token ids.
    """

    title: ClassVar[str] = "Is this network fit to ship?"

    gates: tuple[Gate, ...]
    monitorability: MiraResult | None
    shuffle: ShuffleScore | None
    benchmark: BenchmarkResult
    guard: Guard
    watch: VolatilityWatch

    @property
    def passed(self) -> bool | None:
        """False if a gate failed, else None if one is undecided, else True."""
        found = [gate.passed for gate in self.gates]
        return False if False in found else None if None in found else True

    @tabled
    def to_frame(self) -> pd.DataFrame:
        """A row per gate."""
        return pd.DataFrame(
            [
                {
                    "gate": gate.name,
                    "measured": gate.measured,
                    "lower": gate.interval[0],
                    "upper": gate.interval[1],
                    "wanted": gate.wanted,
                    "verdict": gate.verdict,
                }
                for gate in self.gates
            ]
        )

    def summary(self) -> str:
        words = {
            True: "Every gate passed.",
            False: "A gate failed: do not ship this network as it is.",
            None: "A gate is undecided: there is too little data to ship or to reject the network.",
        }[self.passed]
        return "\n\n".join([words, *(gate.words for gate in self.gates)])

    def parts(self) -> list[Any]:
        """The results behind the gates, for the report."""
        found = [self.monitorability, self.shuffle, self.benchmark]
        return [part for part in found if part is not None]

    def plot(self) -> "Figure":
        return gates_figure(self.gates)
