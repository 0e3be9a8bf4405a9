"""Inverse temperatures to draw sequences at, so that the bins asked for are covered."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

PILOT_BETAS = (-2.0, -1.0, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0)
SPACING = 1.5  # standard deviations of the output between the mean outputs of neighbouring proposals
NEAR_ZERO = 0.05  # betas this close to zero are put there, where one proposal stands anyway
FEWEST_PROPOSALS, MOST_PROPOSALS = 6, 24


def proposal_betas(betas: Array, means: Array, deviations: Array, low: float, high: float) -> Array:
    """Betas from that whose mean output is `high` to that of `low`, evenly spaced in deviations; and zero,
    and the model's own if colder ones are among them.

    In units of its deviation the output changes by deviation x dbeta (thermodynamic length), so neighbours
    overlap alike however narrow the outputs become at one end.
    """
    length = np.concatenate([[0.0], np.cumsum((deviations[1:] + deviations[:-1]) / 2 * np.diff(betas))])
    hot, cold = np.interp([-high, -low], -means, betas)
    first, last = np.interp([hot, cold], betas, length)
    count = int(np.clip(np.ceil((last - first) / SPACING) + 1, FEWEST_PROPOSALS, MOST_PROPOSALS))
    spread = np.interp(np.linspace(first, last, count), length, betas)
    spread[np.abs(spread) < NEAR_ZERO] = 0.0
    safe = [0.0, 1.0] if cold > 1.0 else [0.0]
    return np.asarray(np.unique(np.concatenate([safe, on_grid(spread)])))


def on_grid(betas: Array) -> Array:
    """Rounded to multiples of a power of two of at most a quarter of the smallest step between betas.

    Powers of probabilities at betas on a grid are products of one power (see vocabulary).
    """
    steps = np.diff(np.unique(betas))
    exponent = np.floor(np.log2(steps.min() / 4)) if len(steps) else 0.0
    unit = 2.0 ** np.clip(exponent, -12, 0)
    return np.asarray((betas / unit).round() * unit)
