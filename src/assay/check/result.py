"""Check: the gates, the results behind them, and what is ready to ship."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import pandas as pd

from assay.benchmark import BenchmarkResult
from assay.check.gate import Gate
from assay.guard import Guard
from assay.mira import MiraResult
from assay.storage import storable
from assay.volatility import VolatilityWatch

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {"passed": "#0072b2", "failed": "#d55e00", "undecided": "#777777"}
"""Blue and orange, which the colour-blind tell apart; the word stands beside the colour."""


@storable("Check")
@dataclass(frozen=True, eq=False)
class Check:
    """What `check_network` found. `guard` and `watch` are calibrated and ready to be saved and shipped.

    `monitorability` is None where it could not be measured; its gate says why.
    """

    title: ClassVar[str] = "Is this network fit to ship?"

    gates: tuple[Gate, ...]
    monitorability: MiraResult | None
    benchmark: BenchmarkResult
    guard: Guard
    watch: VolatilityWatch

    @property
    def passed(self) -> bool | None:
        """False where a gate failed, else None where one could not be decided, else True."""
        found = [gate.passed for gate in self.gates]
        return False if False in found else None if None in found else True

    def to_frame(self) -> pd.DataFrame:
        """A row per gate."""
        return pd.DataFrame(
            [
                {
                    "gate": gate.name,
                    "measured": gate.measured,
                    "wanted": gate.wanted,
                    "verdict": gate.verdict,
                }
                for gate in self.gates
            ]
        )

    def summary(self) -> str:
        words = {
            True: "Every gate was passed.",
            False: "A gate failed: do not ship it like this.",
            None: "A gate could not be decided: neither ship nor reject it on this data.",
        }[self.passed]
        return " ".join([words, *(gate.words for gate in self.gates)])

    def parts(self) -> list[Any]:
        """The results behind the gates, for the report."""
        found = [self.monitorability, self.benchmark]
        return [part for part in found if part is not None]

    def plot(self) -> "Figure":
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7, 0.6 + 0.42 * len(self.gates)), layout="constrained")
        axes = figure.subplots()
        axes.set_axis_off()
        axes.set_title("The gates", fontsize=10)
        axes.set_xlim(0, 1)
        axes.set_ylim(len(self.gates) - 0.5, -0.5)
        for row, gate in enumerate(self.gates):
            axes.text(0.0, row, gate.name, va="center", fontsize=9)
            axes.text(0.36, row, f"{gate.measured:.3g}  (wanted: {gate.wanted})", va="center", fontsize=9)
            colour = COLOURS[gate.verdict]
            axes.text(
                1.0, row, gate.verdict, va="center", ha="right", fontsize=9, color=colour, weight="bold"
            )
        return figure
