"""AnnotationItems: the inputs chosen for people to judge, with the weight of each."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.errors import InputError
from assay.identity import digest
from assay.notebook import Shown
from assay.omniinput.sampling.distribution import OutputDistribution
from assay.storage import storable
from assay.table import tabled

Integers = NDArray[np.int64]


@storable("AnnotationItems")
@dataclass(frozen=True, eq=False)
class AnnotationItems(Shown):
    """Distinct inputs to judge; an item is identified by its row among the distribution's kept inputs.

    `counts` is how often each was drawn: its weight within its bin. `run` identifies the distribution, so
    that labels are never used with another.
    """

    title: ClassVar[str] = "Inputs to annotate"

    rows: Integers
    bins: Integers
    counts: Integers
    inputs: Tensor
    texts: list[str] | None
    values: int
    run: str

    def __len__(self) -> int:
        return len(self.rows)

    def text(self, place: int) -> str:
        """The item as text, or as numbers if there is no decoder."""
        if self.texts is not None:
            return self.texts[place]
        return " ".join(map(str, self.inputs[place].flatten().tolist()))

    @property
    def is_image(self) -> bool:
        """Whether items are images rather than texts."""
        return self.texts is None and self.inputs.ndim > 2

    @tabled
    def to_frame(self) -> pd.DataFrame:
        """A row per item. Annotators should not see the bin."""
        columns = {"item": self.rows, "bin": self.bins, "weight": self.counts}
        return pd.DataFrame(columns | {"text": [self.text(place) for place in range(len(self))]})

    def joined(self, more: "AnnotationItems") -> "AnnotationItems":
        """These and more items of the same run; the counts of an item in both are added."""
        if more.run != self.run:
            raise InputError("expected more items of the same distribution, got items of another run")
        fresh = ~np.isin(more.rows, self.rows)
        again = dict(zip(more.rows.tolist(), more.counts.tolist(), strict=True))
        counts = self.counts + np.array([again.get(row, 0) for row in self.rows.tolist()], dtype=np.int64)
        texts = None
        if self.texts is not None and more.texts is not None:
            texts = self.texts + [more.texts[place] for place in np.flatnonzero(fresh)]
        return AnnotationItems(
            np.concatenate([self.rows, more.rows[fresh]]),
            np.concatenate([self.bins, more.bins[fresh]]),
            np.concatenate([counts, more.counts[fresh]]),
            torch.cat([self.inputs, more.inputs[torch.from_numpy(fresh)]]),
            texts,
            self.values,
            self.run,
        )


def run_name(dist: OutputDistribution) -> str:
    """A hash of the bins and the kept inputs, which identifies the run."""
    return digest(dist.edges, dist.kept.inputs, dist.kept.outputs, dist.kept.bins)
