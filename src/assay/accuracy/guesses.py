"""Guesses of whether predictions are right, one per operational row: any scores in [0, 1]."""

from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, logit

from assay.errors import InputError
from assay.volatility.certainty import Doubles

_ODDS_LIMIT = 1e-12
"""Nearer to 0 or 1, double precision no longer tells guesses apart."""


def checked_guesses(guesses: Any, count: int | None = None) -> Doubles:
    """As an array, with one number from 0 to 1 per row."""
    found = np.asarray(guesses, np.float64)
    if found.ndim != 1 or not len(found) or count not in (None, len(found)):
        wanted = "one guess per operational row" if count is None else f"{count} guesses, one per row"
        raise InputError(f"expected {wanted}, got shape {found.shape}; pass how likely each row is right")
    if not (np.isfinite(found).all() and found.min() >= 0 and found.max() <= 1):
        raise InputError(
            f"expected guesses from 0 to 1, got {found.min():g} to {found.max():g}; pass how likely each row "
            "is right"
        )
    return found


def moved_to(mean: float, guesses: Doubles) -> Doubles:
    """The guesses, all moved by one constant on the scale of log-odds, so that they have this mean.

    Guesses that crowd near one, as those of a network that is too sure, come apart, and so explain more.
    """
    least, most = _ODDS_LIMIT, 1 - _ODDS_LIMIT
    odds = logit(np.clip(guesses, least, most))
    wanted = min(max(mean, least), most)
    reach = float(np.abs(odds).max() - logit(least))
    return expit(odds + brentq(lambda step: expit(odds + step).mean() - wanted, -reach, reach, xtol=1e-6))
