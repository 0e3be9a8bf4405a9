"""OutputCounts: how many sequences have each output, as far as it is known, and what follows at any beta."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax

from assay.storage import storable

Array = NDArray[np.float64]

WIDTH = 1 / 32  # nats: at a beta of 4 an output is off by a sixteenth at most


@storable("omniinput.OutputCounts")
@dataclass
class OutputCounts:
    """ln of how many sequences have outputs in each thirty-second of a nat, up to a constant.

    Memory grows with the range of outputs, not with the number of sequences that were counted.
    """

    places: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    logs: Array = field(default_factory=lambda: np.empty(0))

    def add(self, outputs: Array, log_weights: Array) -> None:
        """Outputs of sequences, and ln of how many each stands for."""
        known = np.isfinite(log_weights)
        places = np.append(self.places, np.floor(outputs[known] / WIDTH).astype(np.int64))
        self.places, which = np.unique(places, return_inverse=True)
        logs, self.logs = np.append(self.logs, log_weights[known]), np.full(len(self.places), -np.inf)
        np.logaddexp.at(self.logs, which, logs)

    @property
    def _outputs(self) -> Array:
        return np.asarray((self.places + 0.5) * WIDTH)

    def moments(self, betas: Array) -> tuple[Array, Array]:
        """Mean and deviation of the outputs under p(x)^beta; means decrease with beta."""
        shares = softmax(self.logs - betas[:, None] * self._outputs, axis=1)
        means = shares @ self._outputs
        return means, np.sqrt(np.maximum(shares @ self._outputs**2 - means**2, 0.0))

    def log_totals(self, betas: Array) -> Array:
        """ln of the sum of p(x)^beta over all sequences, up to a constant."""
        return np.asarray(logsumexp(self.logs - betas[:, None] * self._outputs, axis=1))
