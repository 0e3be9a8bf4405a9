"""BetaPilot: what the first tenth of a run finds out, by which betas are chosen."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax

from assay.omniinput.sampling.samplers.proposal_betas import PILOT_BETAS
from assay.omniinput.sampling.samplers.sequences import Sequences
from assay.storage import storable

Array = NDArray[np.float64]


@storable("omniinput.BetaPilot")
@dataclass
class BetaPilot:
    """Sums over drawn sequences at the pilot's betas, and the selected sequences with what they stand for."""

    sums: Array = field(default_factory=lambda: np.zeros((3, len(PILOT_BETAS))))
    particles: list[float] = field(default_factory=list)  # effective shares of a batch, had it been drawn
    outputs: Array = field(default_factory=lambda: np.empty(0))
    log_counts: Array = field(default_factory=lambda: np.empty(0))

    def watch_drawn(self, outputs: Array) -> None:
        """Outputs of prefixes, (pilot betas, rows of each)."""
        counts = np.full(len(outputs), float(outputs.shape[1]))
        self.sums += np.stack([counts, outputs.sum(axis=1), (outputs**2).sum(axis=1)])

    def watch_selected(self, found: Sequences, betas: Array, log_counts: Array) -> None:
        """Sequences of these betas, and ln of how many inputs each stands for among those of all betas."""
        self.particles.append(drawn_particles(found, betas))
        self.outputs = np.concatenate([self.outputs, found.outputs])
        self.log_counts = np.concatenate([self.log_counts, log_counts])

    def drawn_moments(self) -> tuple[Array, Array]:
        """Mean and deviation of the outputs that are drawn at the pilot's betas; means decrease."""
        count, total, squares = self.sums
        means = np.minimum.accumulate(total / count)
        return means, np.sqrt(np.maximum(squares / count - (total / count) ** 2, 0.0))

    def tempered_moments(self, betas: Array) -> tuple[Array, Array]:
        """The same of p(x)^beta itself, from what the selected sequences stand for; at any betas."""
        shares = softmax(self.log_counts - betas[:, None] * self.outputs, axis=1)
        means = shares @ self.outputs
        return means, np.sqrt(np.maximum(shares @ self.outputs**2 - means**2, 0.0))

    def log_totals(self, betas: Array) -> Array:
        """ln of the sum of p(x)^beta over all sequences, up to a constant."""
        return np.asarray(logsumexp(self.log_counts - betas[:, None] * self.outputs, axis=1))


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
