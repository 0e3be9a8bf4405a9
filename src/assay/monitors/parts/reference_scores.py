"""Scores of known rows as a scale for others: conformal p-values, and a fitted tail beyond all of them."""

import math

import torch
from torch import Tensor

from assay.network.graph import under_tracer

TAIL_SHARE = 0.1
"""Share of the reference scores, the largest, to which the tail is fitted."""

FEWEST = 20
"""Reference scores below which no tail is fitted."""

HEAVIEST = 0.5
"""Largest shape: heavier tails have no variance, and probability-weighted moments cannot tell them apart."""

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

    The excesses y of the largest tenth over the score below them have S(y) = (1 + shape y / scale)^(-1 /
    shape) (Pickands 1975). Scale and shape are the probability-weighted moments of Hosking and Wallis 1987,
    Eq. 8 with their plotting positions (i - 0.35) / n. Their shape is not taken below 0: a tail that ended
    would make what lies beyond it impossible; it is exponential then. Scores that tie at the top, as those of
    a rule, show no tail.
    """
    count = round(TAIL_SHARE * len(reference))
    if len(reference) < FEWEST or not count:
        return None
    start = reference[-count - 1]
    excess = (reference[-count:] - start).double()
    mean = float(excess.mean())
    positions = (torch.arange(1, count + 1, dtype=torch.float64) - 0.35) / count
    weighted = float((excess * (1 - positions)).mean())
    if not mean > 0 or not math.isfinite(mean):
        return None
    shape = 2 - mean / (mean - 2 * weighted) if mean > 2 * weighted else HEAVIEST
    shape = min(max(shape, 0.0), HEAVIEST)
    scale = mean * (1 - shape)  # the mean of the tail is scale / (1 - shape)
    return torch.tensor([float(reference[-1]), float(start), scale, shape], dtype=torch.float64)


def _beyond(scores: Tensor, tail: Tensor) -> Tensor:
    """ln S(M) - ln S(score) where the score is above M, the largest of the reference, else 0."""
    largest, start, scale, shape = tail.tolist()
    reached = 1 + shape * (largest - start) / scale
    farther = (scores.clamp(min=largest) - largest) / (scale * reached)
    grown: Tensor = torch.log1p(shape * farther) / shape if shape > 1e-9 else farther
    return grown.clamp(max=_FARTHEST)
