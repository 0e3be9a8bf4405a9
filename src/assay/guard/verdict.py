"""Verdict: the predictions, scores and alarms of a guard."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pandas as pd
from torch import Tensor

from assay.guard.input_verdict import InputVerdict
from assay.notebook import Shown
from assay.storage import storable
from assay.table import tabled
from assay.trace import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CANCELLED = -1
"""The value in `accepted_predictions` where the guard raised the alarm."""

NOT_FINITE = "not finite"
"""The reason where an input, a logit, a feature or a score is NaN or infinite."""


@storable("Verdict")
@dataclass(frozen=True, eq=False)
class Verdict(Shown):
    """A guard's verdict on N predictions: these, the monitor's scores, and the alarms.

    Where an input has several predictions, `source` is the number of the input that each came from, and
    `per_input` is the verdict on whole inputs.
    """

    predictions: Tensor
    scores: Tensor
    alarm: Tensor
    source: Tensor | None = None
    per_input: InputVerdict | None = None
    evidence: Tensor | None = None
    """(N, members): each member's own evidence, -ln of its p-value; None where there is one monitor."""
    members: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.alarm)

    def rows_of(self, start: int, stop: int) -> slice | Tensor:
        """Which rows are those of the inputs from `start` to before `stop`."""
        return slice(start, stop) if self.source is None else (self.source >= start) & (self.source < stop)

    def of_inputs(self, start: int, stop: int) -> "Verdict":
        """The verdict on the inputs from `start` to before `stop`, as if they had come alone."""
        rows = self.rows_of(start, stop)
        return replace(
            self,
            predictions=self.predictions[rows],
            scores=self.scores[rows],
            alarm=self.alarm[rows],
            source=None if self.source is None else self.source[rows] - start,
            per_input=None if self.per_input is None else self.per_input[start:stop],
            evidence=None if self.evidence is None else self.evidence[rows],
        )

    @property
    def accepted_predictions(self) -> Tensor:
        """The predictions, with `CANCELLED` (-1) where the alarm was raised."""
        return self.predictions.masked_fill(self.alarm, CANCELLED)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Which members raised the alarm, row by row: the one with the most evidence, and every other with at
        least half as much, in that order. Empty where there is no alarm."""
        alarm = self.alarm.tolist()
        if self.evidence is None:
            name = self.members[0] if self.members else "monitor"
            return tuple(name if raised else "" for raised in alarm)
        return tuple(
            _objectors(self.members, row) if raised else ""
            for raised, row in zip(alarm, self.evidence.tolist(), strict=True)
        )

    def summary(self) -> str:
        raised, count = int(self.alarm.sum()), len(self)
        share = f" ({raised / count:.1%})" if count else ""
        return f"{count:,} predictions, {raised:,} under alarm{share}."

    def plot(self) -> "Figure":
        """How the scores are spread, with and without alarm."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6, 2.4), layout="constrained")
        axes = figure.subplots()
        finite = self.scores.double().isfinite()
        parts = [self.scores[finite & (self.alarm == raised)].double().numpy() for raised in (False, True)]
        axes.hist(parts, bins=30, stacked=True, color=["#0072b2", "#d55e00"], label=["no alarm", "alarm"])
        axes.set_xlabel("score (higher is more suspicious)")
        axes.set_ylabel("predictions")
        axes.legend(frameon=False, fontsize=8)
        return figure

    @tabled
    def to_frame(self) -> pd.DataFrame:
        """A row per prediction; `per_input.to_frame()` has a row per input."""
        columns: dict[str, Any] = {} if self.source is None else {"source": self.source.numpy()}
        columns |= {
            "prediction": self.predictions.numpy(),
            "score": self.scores.numpy(),
            "alarm": self.alarm.numpy(),
            "reasons": list(self.reasons),
        }
        return pd.DataFrame(columns)


def _objectors(members: Sequence[str], evidence: Sequence[float]) -> str:
    if not all(map(math.isfinite, evidence)):
        return NOT_FINITE
    most = max(evidence)
    order = sorted(zip(evidence, members, strict=True), key=lambda pair: -pair[0])
    return ", ".join(name for own, name in order if own >= most / 2)


@dataclass(frozen=True, eq=False)
class Answer:
    """A verdict, the Trace it is based on, and the seconds that network and monitor took.

    An exported guard is one graph: all its seconds are the model's.
    """

    verdict: Verdict
    trace: Trace
    model_seconds: float
    monitor_seconds: float

    def of_inputs(self, start: int, stop: int) -> "Answer":
        """The answer about the inputs from `start` to before `stop`; the seconds are those of all."""
        trace = self.trace[self.verdict.rows_of(start, stop)]
        return replace(self, verdict=self.verdict.of_inputs(start, stop), trace=trace)
