"""What a guard says of whole inputs, where each has several predictions."""

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import pandas as pd
import torch
from torch import Tensor

from assay.errors import InputError
from assay.notebook import Shown
from assay.storage import storable
from assay.table import tabled

PerInput: TypeAlias = Literal["share", "mean", "largest"]
"""How the rows of an input become its score: the share of them under alarm, their mean score, or the
largest."""


@storable("guard.InputVerdict")
@dataclass(frozen=True, eq=False)
class InputVerdict(Shown):
    """A verdict per input. An input without rows cannot be judged: its score is NaN, and that is an alarm."""

    rows: Tensor
    """How many predictions the input has."""
    alarms: Tensor
    """How many of these are under alarm."""
    scores: Tensor
    alarm: Tensor

    def __len__(self) -> int:
        return len(self.alarm)

    def __getitem__(self, inputs: slice) -> "InputVerdict":
        return InputVerdict(self.rows[inputs], self.alarms[inputs], self.scores[inputs], self.alarm[inputs])

    @tabled
    def to_frame(self) -> pd.DataFrame:
        """A row per input, in their order."""
        return pd.DataFrame(
            {
                "rows": self.rows.numpy(),
                "alarms": self.alarms.numpy(),
                "score": self.scores.numpy(),
                "alarm": self.alarm.numpy(),
            }
        )


def check_per_input(per_input: str) -> None:
    if per_input not in get_args(PerInput):
        raise InputError(f"expected per_input to be one of {list(get_args(PerInput))}, got {per_input!r}")


def rows_of_inputs(source: Tensor, count: int) -> Tensor:
    """(count,): how many rows each input has."""
    return torch.bincount(source, minlength=count)


def input_scores(per_input: PerInput, scores: Tensor, alarm: Tensor, source: Tensor, count: int) -> Tensor:
    """(count,) scores of inputs; NaN where an input has no row, or a score that is not finite counts.

    >>> scores, alarm = torch.tensor([0.1, 0.9, 0.5]), torch.tensor([False, True, False])
    >>> input_scores("share", scores, alarm, torch.tensor([0, 0, 2]), 3).tolist()
    [0.5, nan, 0.0]
    """
    values = alarm.double() if per_input == "share" else scores.double()
    nothing = torch.zeros(count, dtype=torch.float64)
    if per_input == "largest":
        found = torch.full_like(nothing, -torch.inf).scatter_reduce_(0, source, values, "amax")
    else:
        found = nothing.index_add_(0, source, values) / rows_of_inputs(source, count)
    return torch.where(torch.isfinite(found), found, torch.nan)
