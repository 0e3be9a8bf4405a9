"""Verdict: the predictions, scores and alarms of a guard."""

from dataclasses import dataclass

import pandas as pd
from torch import Tensor

from assay.guard.input_verdict import InputVerdict
from assay.storage import storable
from assay.table import tabled
from assay.trace import Trace

CANCELLED = -1
"""The value in `accepted_predictions` where the guard raised the alarm."""


@storable("Verdict")
@dataclass(frozen=True, eq=False)
class Verdict:
    """A guard's verdict on N predictions: these, the monitor's scores, and the alarms.

    Where an input has several predictions, `source` is the number of the input that each came from, and
    `per_input` is the verdict on whole inputs.
    """

    predictions: Tensor
    scores: Tensor
    alarm: Tensor
    source: Tensor | None = None
    per_input: InputVerdict | None = None

    def __len__(self) -> int:
        return len(self.alarm)

    @property
    def accepted_predictions(self) -> Tensor:
        """The predictions, with `CANCELLED` (-1) where the alarm was raised."""
        return self.predictions.masked_fill(self.alarm, CANCELLED)

    @tabled
    def to_frame(self) -> pd.DataFrame:
        """A row per prediction; `per_input.to_frame()` has a row per input."""
        columns = {} if self.source is None else {"source": self.source.numpy()}
        columns |= {
            "prediction": self.predictions.numpy(),
            "score": self.scores.numpy(),
            "alarm": self.alarm.numpy(),
        }
        return pd.DataFrame(columns)


@dataclass(frozen=True, eq=False)
class Answer:
    """A verdict, the Trace it is based on, and the seconds that network and monitor took.

    An exported guard is one graph: all its seconds are the model's.
    """

    verdict: Verdict
    trace: Trace
    model_seconds: float
    monitor_seconds: float
