"""Inverse temperatures to draw sequences at, so that the bins asked for are covered."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

PILOT_BETAS = (-2.0, -1.0, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0)
SPACING = 1.5  # standard deviations of the output between the mean outputs of neighbouring proposals
NEAR_ZERO = 0.05  # betas this close to zero are put there, where one proposal stands anyway
FEWEST_PROPOSALS, MOST_PROPOSALS = 6, 24


def proposal_betas(betas: Array, means: Array, deviations: Array, low: float, high: float) -> Array:
    """Betas from that whose mean output is `high` to that of `low`, evenly spaced in deviations; and zero.

    In units of its deviation the output changes by deviation x dbeta (thermodynamic length), so neighbours
    overlap alike however narrow the outputs become at one end.
    """
    length = np.concatenate([[0.0], np.cumsum((deviations[1:] + deviations[:-1]) / 2 * np.diff(betas))])
    hot, cold = np.interp([-high, -low], -means, betas)
    first, last = np.interp([hot, cold], betas, length)
    count = int(np.clip(np.ceil((last - first) / SPACING) + 1, FEWEST_PROPOSALS, MOST_PROPOSALS))
    spread = np.interp(np.linspace(first, last, count), length, betas)
    spread[np.abs(spread) < NEAR_ZERO] = 0.0
    return np.asarray(np.unique(np.concatenate([[0.0], spread.round(4)])))
