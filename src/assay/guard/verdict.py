"""Verdict: the predictions, scores and alarms of a guard."""

from dataclasses import dataclass

import pandas as pd
from torch import Tensor

from assay.storage import storable
from assay.table import tabled
from assay.trace import Trace

CANCELLED = -1
"""The value in `accepted_predictions` where the guard raised the alarm."""


@storable("Verdict")
@dataclass(frozen=True, eq=False)
class Verdict:
    """A guard's verdict on N inputs: the network's predictions, the monitor's scores, and the alarms."""

    predictions: Tensor
    scores: Tensor
    alarm: Tensor

    def __len__(self) -> int:
        return len(self.alarm)

    @property
    def accepted_predictions(self) -> Tensor:
        """The predictions, with `CANCELLED` (-1) where the alarm was raised."""
        return self.predictions.masked_fill(self.alarm, CANCELLED)

    @tabled
    def to_frame(self) -> pd.DataFrame:
        return pd.DataFrame(
            {
                "prediction": self.predictions.numpy(),
                "score": self.scores.numpy(),
                "alarm": self.alarm.numpy(),
            }
        )


@dataclass(frozen=True, eq=False)
class Answer:
    """A verdict, the Trace it is based on, and the seconds that network and monitor took.

    An exported guard is one graph: all its seconds are the model's.
    """

    verdict: Verdict
    trace: Trace
    model_seconds: float
    monitor_seconds: float
