"""What a network puts out: logits, probabilities or their logarithms; recognised, and read as logits.

Everything behind a network reads logits, whose softmax are the probabilities. Probabilities taken for logits
are wrong without a trace of it: the softmax of (0.99, 0.01) is (0.73, 0.27).
"""

import math
from enum import Enum

import torch
from torch import Tensor

from assay.errors import InputError
from assay.probability_rows import HALF_TOLERANCE, SUM_TOLERANCE

PROBABILITIES, LOGITS, LOG_PROBABILITIES = "probabilities", "logits", "log-probabilities"
KINDS = (PROBABILITIES, LOGITS, LOG_PROBABILITIES)

SMALLEST = torch.finfo(torch.float32).tiny
"""What a probability of zero counts as, 1e-38: its logarithm is finite."""

ENOUGH = 20
"""So many rows that add up to one, if only to two decimals, are no accident."""

EXACT = 1e-5
"""How far the sum of a softmax in single precision may be from one: with fewer rows than `ENOUGH` it must be
that close, which logits are once in a hundred thousand rows."""

LOOKED_AT = 4096
"""Rows that are looked at: a Trace may have millions."""


class Finding(Enum):
    """What rows of outputs look like."""

    PROBABILITIES = "probabilities"
    LOGITS = "logits"
    EITHER = "probabilities or logits"
    ONE_HOT = "one-hot answers, or logits of the same numbers"
    SEVERAL_LABELS = "several probabilities that do not sum to one"
    NONE_FINITE = "no row that is finite"
    TOO_FEW = "values between 0 and 1, too few to tell"


def check_kind(outputs: str | None) -> None:
    """Refuse anything but the three kinds, or None: to be recognised."""
    if outputs is not None and outputs not in KINDS:
        raise InputError(f"expected outputs to be one of {list(KINDS)}, got {outputs!r}")


def found_in(values: Tensor) -> Finding:
    """What (N, classes) outputs look like, by the first of them; rows that are not finite are passed over.

    >>> found_in(torch.tensor([[0.25, 0.75]])).name, found_in(torch.tensor([[0.0, 1.0]])).name
    ('PROBABILITIES', 'ONE_HOT')
    """
    rows = values.detach()[:LOOKED_AT].double()
    rows = rows[torch.isfinite(rows).all(dim=1)]
    if not len(rows):
        return Finding.NONE_FINITE
    if rows.min() < 0:
        return Finding.LOGITS
    off = float((rows.sum(dim=1) - 1).abs().max())
    enough = len(rows) >= ENOUGH
    if off <= (HALF_TOLERANCE if enough or values.itemsize < 4 else SUM_TOLERANCE):
        if bool((rows == rows.round()).all()):
            return Finding.ONE_HOT
        return Finding.PROBABILITIES if enough or off <= EXACT else Finding.EITHER
    if rows.max() > 1:
        return Finding.LOGITS
    return Finding.SEVERAL_LABELS if enough else Finding.TOO_FEW


def found_in_single(values: Tensor) -> Finding:
    """What outputs of one or several sigmoids, or the logits before them, look like.

    A value outside [0, 1] is a logit. All inside are probabilities if they lie on both sides of 0.5, so that
    both answers occur; as logits they would all say the same.
    """
    seen = values.detach()[torch.isfinite(values.detach())]
    if not len(seen):
        return Finding.NONE_FINITE
    low, high = float(seen.min()), float(seen.max())
    if low < 0 or high > 1:
        return Finding.LOGITS
    return Finding.PROBABILITIES if len(seen) >= ENOUGH and low < 0.5 < high else Finding.EITHER


def as_logits(values: Tensor, kind: str) -> Tensor:
    """(N, classes) logits, differentiable; a single column becomes two classes with logits (0, z).

    >>> as_logits(torch.tensor([[0.25, 0.75]]), "probabilities").softmax(dim=1)
    tensor([[0.2500, 0.7500]])
    >>> as_logits(torch.tensor([[0.75]]), "probabilities").softmax(dim=1)
    tensor([[0.2500, 0.7500]])
    """
    if kind != LOGITS and values.itemsize < 4:
        values = values.float()
    if values.shape[1] == 1:
        single = _single_logit(values, kind)
        return torch.cat([torch.zeros_like(single), single], dim=1)
    if kind == PROBABILITIES:
        return _logarithm(values)
    return values.clamp(min=math.log(SMALLEST)) if kind == LOG_PROBABILITIES else values


def expect_kind(values: Tensor, kind: str, owner: str) -> None:
    """An error where a finite row cannot be of this kind: no probabilities, or logarithms of none."""
    if kind == LOGITS:
        return
    rows = values.detach()
    chances = rows.exp() if kind == LOG_PROBABILITIES else rows
    totals, least = chances.sum(dim=1, dtype=torch.float64), chances.amin(dim=1)
    enough = totals >= (0 if values.shape[1] == 1 else 1 - HALF_TOLERANCE)
    strange = torch.isfinite(totals) & ~(enough & (totals <= 1 + HALF_TOLERANCE) & (least >= 0))
    if strange.any():
        raise InputError(
            f"expected {kind} from {owner}, one row per input whose probabilities add up to 1, got others in "
            f'row {int(strange.nonzero()[0])}; pass outputs="logits" if these are logits, or label= of '
            "Network if they answer several questions"
        )


def _single_logit(values: Tensor, kind: str) -> Tensor:
    """z with sigmoid(z) = p."""
    if kind == LOGITS:
        return values
    chance = values if kind == PROBABILITIES else values.exp()
    return _logarithm(chance) - _logarithm(1 - chance)


def _logarithm(chances: Tensor) -> Tensor:
    return chances.clamp(min=SMALLEST).log()
