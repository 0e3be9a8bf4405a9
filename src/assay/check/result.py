"""Check: the gates, the results behind them, and the guard and watch to ship."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import pandas as pd

from assay.accuracy import AccuracyEstimator
from assay.benchmark import BenchmarkResult
from assay.check.accuracy_trials import AccuracyTrials
from assay.check.advice import advice_on_all
from assay.check.figures import gates_figure
from assay.check.gate import Gate
from assay.guard import Guard
from assay.mira import MiraResult, Monitorability
from assay.notebook import Shown
from assay.statistics import Measured
from assay.storage import storable
from assay.table import tabled
from assay.volatility import VolatilityWatch

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@storable("Check")
@dataclass(frozen=True, eq=False)
class Check(Shown):
    """The findings of `check_network`. `guard`, `watch` and `estimator` are ready to be saved and shipped.

    `monitorability` is None if it could not be measured; its gate, or `left_out`, says why. `mira` is None
    unless its gate was asked for. `left_out` has the parts that this network cannot take part in, with the
    reasons.
    """

    title: ClassVar[str] = "Is this network fit to ship?"

    gates: tuple[Gate, ...]
    monitorability: Monitorability | None
    mira: MiraResult | None
    benchmark: BenchmarkResult
    guard: Guard
    watch: VolatilityWatch
    left_out: dict[str, str] = field(default_factory=dict)
    estimator: AccuracyEstimator | None = None
    """Taught by faults of this network, for accuracy in operation; None if that was left out."""
    trials: AccuracyTrials | None = None
    """How near its answers came on the scenarios."""

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

    def banner(self) -> tuple[bool | None, str]:
        """The verdict in one sentence."""
        named = ", ".join(gate.name for gate in self.gates if gate.passed is self.passed)
        words = {
            True: f"Fit to ship: all {len(self.gates)} gates passed.",
            False: f"Do not ship it as it is: {named} failed.",
            None: f"Cannot tell yet: there is too little data to decide on {named}.",
        }
        return self.passed, words[self.passed]

    def summary(self) -> str:
        words = [self.banner()[1], *(gate.words for gate in self.gates), self.missing]
        return "\n\n".join(filter(None, words))

    def measures(self) -> list[Measured]:
        """What two checks are compared by: the gates."""
        return [Measured(gate.name, gate.measured, gate.interval, gate.at_most) for gate in self.gates]

    def advice(self) -> str:
        """What to do first."""
        return advice_on_all(self.gates)

    @property
    def missing(self) -> str:
        """What was left out, in words, a reason once for all parts that have it; empty where nothing was."""
        by_reason: dict[str, list[str]] = {}
        for part, reason in self.left_out.items():
            by_reason.setdefault(reason, []).append(part)
        said = [f"{', '.join(parts)}, since {reason}" for reason, parts in by_reason.items()]
        return f"Left out: {'; '.join(said)}." if said else ""

    def parts(self) -> list[Any]:
        """The results behind the gates, for the report."""
        found = [self.monitorability, self.mira, self.benchmark, self.trials]
        return [part for part in found if part is not None]

    def plot(self) -> "Figure":
        return gates_figure(self.gates)
