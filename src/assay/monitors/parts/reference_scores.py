"""Scores of known rows as a scale for others: conformal p-values, and a fitted tail beyond all of them."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.monitors.parts.formula import Array, evaluated

TAIL_SHARE = 0.1
"""Share of the reference scores, the largest, to which the tail is fitted."""

FEWEST = 20
"""Reference scores below which no tail is fitted."""

PRIOR_ROWS = 10
"""Weight of the prior of the shape, in rows."""

_FARTHEST = 1e12  # evidence beyond this is infinite for every purpose, and sums of it stay finite
_LARGEST = torch.finfo(torch.float64).max
_EXPONENTIAL = 1e-12


def evidence_of(scores: Tensor, reference: Tensor, tail: Tensor) -> Tensor:
    """-ln p of each score, with p = (1 + #{reference >= score}) / (n + 1), a conformal p-value.

    Above the largest reference score M the count says 1 / (n + 1) however far the score is. There the tail
    goes on: p = S(score) / S(M) / (n + 1), with S the survival function that `fitted_tail` found. For a level
    of 1 / (n + 1) or more p is as before, with the guarantee of conformal p-values; below, it is as good as
    the tail. NaN stays NaN.

    Scores (..., N) are compared with their own reference (..., n), sorted, and tail (..., 3): those of
    several monitors at once, which is what counts in a guarded call on a single input.
    """
    with np.errstate(over="ignore"):  # what is beyond every number is as far as one can be
        return evaluated(_evidence, scores.double(), reference, tail)


def _evidence(xp: Any, scores: Array, reference: Array, tail: Array) -> Array:
    at_least = _counted(reference, scores) if xp is torch else _searched(reference, scores)
    return math.log(reference.shape[-1] + 1) - xp.log1p(at_least) + _beyond(xp, scores, tail)


def _counted(reference: Tensor, scores: Tensor) -> Tensor:
    """How many of the reference are at least as large as each score: graphs have no search."""
    return (reference[..., None, :] >= scores[..., None]).sum(dim=-1).double()


def _searched(reference: Array, scores: Array) -> Array:
    """The same, by a search in the sorted reference."""
    if scores.ndim == 1:
        return reference.shape[-1] - np.searchsorted(reference, scores)
    return np.stack([_searched(*pair) for pair in zip(reference, scores, strict=True)])


def fitted_tail(reference: Tensor) -> Tensor:
    """(largest score, scale, shape) of a generalised Pareto tail beyond it; the scale is infinite, so that
    nothing is beyond, if the scores show none.

    The excesses y of the largest tenth (ten at least) over the score below them have S(y) = (1 + shape y /
    scale)^(-1 / shape) (Pickands 1975). Scale and shape are those of Zhang and Stephens 2009, which are
    stable for heavy tails and few rows; the shape is drawn to 1/2 with the weight of ten rows (Vehtari et
    al. 2024, Appendix C), and is not taken below 0: a tail that ended would make what lies beyond it
    impossible, and it is exponential then. What exceeds the largest score has the same shape, and the scale
    grows by shape times its excess. Scores that tie at the top, as those of a rule, show no tail.
    """
    count = max(FEWEST // 2, round(TAIL_SHARE * len(reference)))
    if len(reference) < FEWEST:
        return no_tail(reference)
    excess = (reference[-count:] - reference[-count - 1]).double()
    if not excess[count // 4] > 0 or not torch.isfinite(excess[-1]):
        return no_tail(reference)
    scale, shape = _zhang_stephens(excess)
    if shape <= 0:
        scale, shape = float(excess.mean()), 0.0
    return _tail(reference, scale + shape * float(excess[-1]), shape)


def no_tail(reference: Tensor) -> Tensor:
    """A tail that adds nothing: p-values end at 1 / (n + 1)."""
    return _tail(reference, math.inf, 0.0)


def _tail(reference: Tensor, scale: float, shape: float) -> Tensor:
    return torch.tensor([float(reference[-1]), scale, shape], dtype=torch.float64)


def _zhang_stephens(excess: Tensor) -> tuple[float, float]:
    """Scale and shape of sorted excesses: the mean of b = -shape / scale over its profile likelihood, with
    their prior, on their grid of 30 + sqrt(n) points."""
    count = len(excess)
    points = 30 + int(count**0.5)
    steps = 1 - (points / (torch.arange(1, points + 1, dtype=torch.float64) - 0.5)).sqrt()
    grid = 1 / excess[-1] + steps / (3 * excess[count // 4])
    shapes = torch.log1p(-grid[:, None] * excess).mean(dim=1)
    likelihood = count * (torch.log(-grid / shapes) - shapes - 1)
    b = float((torch.softmax(likelihood, dim=0) * grid).sum())
    shape = float(torch.log1p(-b * excess).mean())
    return -shape / b, (count * shape + PRIOR_ROWS * 0.5) / (count + PRIOR_ROWS)


def _beyond(xp: Any, scores: Array, tail: Array) -> Array:
    """ln S(M) - ln S(score) where the score is above M, the largest of the reference, else 0."""
    largest, scale, shape = (tail[..., place : place + 1] for place in range(3))
    farther = (xp.clip(xp.maximum(scores, largest), None, _LARGEST) - largest) / scale
    # log1p(a y) / a is y in the limit of an exponential tail, and all but y at this shape.
    shape = xp.clip(shape, _EXPONENTIAL, None)
    return xp.clip(xp.log1p(shape * farther) / shape, None, _FARTHEST)
