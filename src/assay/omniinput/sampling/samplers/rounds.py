"""Round: sequences of every beta that count together, drawn in parts that fit the memory.

A beta needs some sequences to select from, and all betas count together; but all of their sequences may be
more than fit the memory at once. So a run has some rounds, and a round as many batches as it needs, each with
all sequences of some of the betas.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from assay.storage import storable

Array = NDArray[np.float64]


@storable("omniinput.Round")
@dataclass
class Round:
    """How many sequences each beta gets, how many betas are done, and what they have added up to."""

    sizes: NDArray[np.int64]
    done: int = 0
    log_sums: dict[str, Array] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return int(self.sizes.sum())

    @property
    def whole(self) -> bool:
        return self.done == len(self.sizes)

    def part(self, most: int) -> slice:
        """The next betas whose sequences are at most so many together; one beta at least."""
        fit = np.searchsorted(np.cumsum(self.sizes[self.done :]), most, side="right")
        return slice(self.done, self.done + max(int(fit), 1))

    def add(self, part: slice, log_sums: dict[str, Array]) -> None:
        """What the sequences of these betas add up to, in logarithms."""
        self.done = part.stop
        before = self.log_sums or {name: np.full_like(value, -np.inf) for name, value in log_sums.items()}
        self.log_sums = {name: np.logaddexp(before[name], value) for name, value in log_sums.items()}
