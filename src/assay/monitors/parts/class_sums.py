"""The sum of the rows of every class."""

import torch
from torch import Tensor

from assay.monitors.parts.gathered import Gathered


class ClassSums(Gathered):
    """Counts (classes,) and sums (classes, size), in double precision."""

    def __init__(self, classes: int, size: int) -> None:
        self.counts = torch.zeros(classes, dtype=torch.float64)
        self.sums = torch.zeros(classes, size, dtype=torch.float64)

    def add(self, rows: Tensor, classes: Tensor) -> None:
        self.sums.index_add_(0, classes, rows.double())
        self.counts += torch.bincount(classes, minlength=len(self.counts))

    def merge(self, other: "ClassSums") -> None:
        self.sums += other.sums
        self.counts += other.counts

    @property
    def means(self) -> Tensor:
        """(classes, size); zero for a class without rows."""
        return self.sums / self.counts.clamp(min=1)[:, None]
