"""AnnotationItems: the inputs chosen for people to judge, and what each of them stands for."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.errors import InputError
from assay.identity import digest
from assay.omniinput.sampling.distribution import OutputDistribution
from assay.storage import storable
from assay.table import tabled

Integers = NDArray[np.int64]


@storable("AnnotationItems")
@dataclass(frozen=True, eq=False)
class AnnotationItems:
    """Distinct inputs to judge; an item is known by its row among the distribution's kept inputs.

    `counts` says how often resampling drew it: its weight within its bin. `run` names the distribution it
    came from, so that labels never end up with another.
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
        """The item as words, or as its numbers where there is no decoder."""
        if self.texts is not None:
            return self.texts[place]
        return " ".join(map(str, self.inputs[place].flatten().tolist()))

    @property
    def is_image(self) -> bool:
        """Whether an item is to be looked at rather than read."""
        return self.texts is None and self.inputs.ndim > 2

    @tabled
    def to_frame(self) -> pd.DataFrame:
        """A row per item. People who annotate should not see the bin."""
        columns = {"item": self.rows, "bin": self.bins, "weight": self.counts}
        return pd.DataFrame(columns | {"text": [self.text(place) for place in range(len(self))]})

    def joined(self, more: "AnnotationItems") -> "AnnotationItems":
        """These and more of the same run; an item in both counts for both."""
        if more.run != self.run:
            raise InputError("expected more items of the same distribution, got those of another run")
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
    """A digest of the bins and the kept inputs: the same for the same run only."""
    return digest(dist.edges, dist.kept.inputs, dist.kept.outputs, dist.kept.bins)
