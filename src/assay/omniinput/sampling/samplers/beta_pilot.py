"""BetaPilot: what the first tenth of a run finds out of drawn sequences, by which betas are chosen."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from assay.omniinput.sampling.samplers.proposal_betas import PILOT_BETAS
from assay.omniinput.sampling.samplers.sequences import Sequences
from assay.storage import storable

Array = NDArray[np.float64]


@storable("omniinput.BetaPilot")
@dataclass
class BetaPilot:
    """Sums over drawn sequences at the pilot's betas, and how drawing compares with selecting."""

    sums: Array = field(default_factory=lambda: np.zeros((3, len(PILOT_BETAS))))
    particles: list[float] = field(default_factory=list)  # effective shares of a batch, had it been drawn

    def watch_drawn(self, outputs: Array) -> None:
        """Outputs of prefixes, (pilot betas, rows of each)."""
        counts = np.full(len(outputs), float(outputs.shape[1]))
        self.sums += np.stack([counts, outputs.sum(axis=1), (outputs**2).sum(axis=1)])

    def drawn_moments(self) -> tuple[Array, Array]:
        """Mean and deviation of the outputs that are drawn at the pilot's betas; means decrease."""
        count, total, squares = self.sums
        means = np.minimum.accumulate(total / count)
        return means, np.sqrt(np.maximum(squares / count - (total / count) ** 2, 0.0))


def drawn_particles(found: Sequences, betas: Array) -> float:
    """The effective share of sequences if they had been drawn instead of selected, at the worst of all betas.

    With weights w under the proposal it is E[w]^2 / E[w^2]; selected sequences are weighted draws of the
    target, under which the same is 1 / (E[w] E[1 / w]).
    """
    assert found.drawn_weights is not None
    selected = found.log_counts - betas[found.own.numpy()] * found.outputs
    total = found.by_beta(selected)
    both = [found.by_beta(selected + sign * found.drawn_weights) - total for sign in (1, -1)]
    return float(np.exp(-both[0] - both[1]).min())
