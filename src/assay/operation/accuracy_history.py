"""AccuracyHistory: the answer about accuracy, window after window."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from assay.accuracy.headline import AccuracyVerdict, Headline
from assay.accuracy.result import AccuracyEstimates
from assay.notebook import Shown
from assay.storage import storable
from assay.table import tabled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KEPT = 500
"""Windows in the history."""

RANGE = ("value", "lower", "upper")


@storable("operation.AccuracyHistory")
@dataclass(frozen=True, eq=False)
class AccuracyHistory(Shown):
    """The headlines of the last 500 windows, oldest first, and how many windows there were before them.

    Windows are numbered from 1, and each follows the one before; `rows` are those of each.
    """

    title: ClassVar[str] = "Accuracy over time"

    reference_accuracy: float
    headlines: tuple[Headline, ...] = ()
    rows: tuple[int, ...] = ()
    forgotten: int = 0
    """Windows before the first of these."""
    forgotten_rows: int = 0

    def __len__(self) -> int:
        return len(self.headlines)

    def extended(self, answer: AccuracyEstimates) -> "AccuracyHistory":
        """The history with one window more."""
        headlines, rows = (*self.headlines, answer.headline), (*self.rows, answer.rows)
        surplus = max(0, len(rows) - KEPT)
        return replace(
            self,
            headlines=headlines[surplus:],
            rows=rows[surplus:],
            forgotten=self.forgotten + surplus,
            forgotten_rows=self.forgotten_rows + sum(rows[:surplus]),
        )

    @property
    def windows(self) -> int:
        """Number of windows so far."""
        return self.forgotten + len(self)

    @property
    def latest(self) -> Headline | None:
        """The answer about the last window; None before the first."""
        return self.headlines[-1] if self.headlines else None

    @tabled
    def to_frame(self) -> pd.DataFrame:
        """A row per window: its number, its last row, how many it has, and the answer about it."""
        return pd.DataFrame(
            {
                "window": np.arange(self.forgotten + 1, self.windows + 1),
                "row": self.forgotten_rows + np.cumsum(self.rows, dtype=np.int64),
                "rows": np.array(self.rows, np.int64),
                **{name: self._column(name) for name in RANGE},
                "verdict": [one.verdict for one in self.headlines],
                "reason": [one.reason for one in self.headlines],
            }
        )

    def summary(self) -> str:
        if self.latest is None:
            return "No window is full yet."
        verdicts = [one.verdict for one in self.headlines]
        counted = [
            f'"{verdict}" {verdicts.count(verdict)}' for verdict in AccuracyVerdict if verdict in verdicts
        ]
        of = "" if not self.forgotten else f" of {self.windows:,}"
        return f"The last {len(self):,}{of} windows: {', '.join(counted)}; the last one {self._now()}."

    def _now(self) -> str:
        now = self.latest
        assert now is not None
        if math.isnan(now.value):
            return f'"{now.verdict}"'
        return f'"{now.verdict}" with {now.value:.1%} ({now.lower:.1%} to {now.upper:.1%})'

    def plot(self) -> "Figure":
        from assay.operation.figures import history_figure

        return history_figure(self.to_frame(), self.reference_accuracy)

    def state(self) -> dict[str, Any]:
        """As columns: hundreds of objects would make every write of a service slow."""
        return {
            "reference_accuracy": self.reference_accuracy,
            "ranges": np.stack([self._column(name) for name in RANGE]),
            "verdicts": [one.verdict for one in self.headlines],
            "reasons": [one.reason for one in self.headlines],
            "rows": np.array(self.rows, np.int64),
            "forgotten": self.forgotten,
            "forgotten_rows": self.forgotten_rows,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "AccuracyHistory":
        parts = zip(*state["ranges"].tolist(), state["verdicts"], state["reasons"], strict=True)
        return cls(
            state["reference_accuracy"],
            tuple(Headline(*part) for part in parts),
            tuple(state["rows"].tolist()),
            state["forgotten"],
            state["forgotten_rows"],
        )

    def _column(self, name: str) -> "np.ndarray[Any, np.dtype[np.float64]]":
        return np.array([getattr(one, name) for one in self.headlines], np.float64)
