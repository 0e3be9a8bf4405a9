"""Scores of known rows as a scale for others: conformal p-values, and a fitted tail beyond all of them."""

import math

import torch
from torch import Tensor

from assay.network.graph import under_tracer

TAIL_SHARE = 0.1
"""Share of the reference scores, the largest, to which the tail is fitted."""

FEWEST = 20
"""Reference scores below which no tail is fitted."""

PRIOR_ROWS = 10
"""Weight of the prior of the shape, in rows."""

_FARTHEST = 1e12  # evidence beyond this is infinite for every purpose, and sums of it stay finite


def evidence_of(scores: Tensor, reference: Tensor, tail: Tensor | None) -> Tensor:
    """-ln p of each score, with p = (1 + #{reference >= score}) / (n + 1), a conformal p-value.

    Above the largest reference score M the count says 1 / (n + 1) however far the score is. There the tail
    goes on: p = S(score) / S(M) / (n + 1), with S the survival function that `fitted_tail` found. For a level
    of 1 / (n + 1) or more p is as before, with the guarantee of conformal p-values; below, it is as good as
    the tail. NaN stays NaN.
    """
    if under_tracer():  # graphs have no search; a count over the reference says the same
        at_least = (reference >= scores[:, None]).sum(dim=1)
    else:
        at_least = len(reference) - torch.searchsorted(reference, scores)
    found = math.log(len(reference) + 1) - torch.log1p(at_least.double())
    if tail is not None:
        found = found + _beyond(scores.double(), tail)
    return torch.where(torch.isnan(scores), torch.nan, found)


def fitted_tail(reference: Tensor) -> Tensor | None:
    """(largest score, start, scale, shape) of a generalised Pareto tail; None if the scores show none.

    The excesses y of the largest tenth (ten at least) over the score below them have S(y) = (1 + shape y /
    scale)^(-1 / shape) (Pickands 1975). Scale and shape are those of Zhang and Stephens 2009, which are
    stable for heavy tails and few rows; the shape is drawn to 1/2 with the weight of ten rows (Vehtari et
    al. 2024, Appendix C), and is not taken below 0: a tail that ended would make what lies beyond it
    impossible, and it is exponential then. Scores that tie at the top, as those of a rule, show no tail.
    """
    count = max(FEWEST // 2, round(TAIL_SHARE * len(reference)))
    if len(reference) < FEWEST:
        return None
    start = reference[-count - 1]
    excess = (reference[-count:] - start).double()
    if not excess[count // 4] > 0 or not torch.isfinite(excess[-1]):
        return None
    scale, shape = _zhang_stephens(excess)
    if shape <= 0:
        scale, shape = float(excess.mean()), 0.0
    return torch.tensor([float(reference[-1]), float(start), scale, shape], dtype=torch.float64)


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


def _beyond(scores: Tensor, tail: Tensor) -> Tensor:
    """ln S(M) - ln S(score) where the score is above M, the largest of the reference, else 0."""
    largest, start, scale, shape = tail.tolist()
    reached = 1 + shape * (largest - start) / scale
    farther = (scores.clamp(min=largest) - largest) / (scale * reached)
    grown: Tensor = torch.log1p(shape * farther) / shape if shape > 1e-9 else farther
    return grown.clamp(max=_FARTHEST)
