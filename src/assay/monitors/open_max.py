"""OpenMax: a further class for what is far from the classes it resembles (Bendale and Boult 2016)."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import brentq
from torch import Tensor

from assay.errors import InputError
from assay.monitors.metadata import Labels, Metadata, Needs
from assay.monitors.monitor import Monitor
from assay.monitors.parts.class_rows import ClassSample, named
from assay.monitors.parts.exponentials import log_sum_exp
from assay.monitors.parts.gathered import Gathered
from assay.monitors.parts.reservoir import checked_limit
from assay.trace import Trace

_SHIFT = 1e4
"""Added to distances before a Weibull distribution is fitted, as in the authors' library libMR. That far from
zero it is a Gumbel distribution, and the number no longer matters."""

_STEP = 1e9
"""Shape for a class whose tail has one distance only: a step from 0 to 1 within about 1e-5 of it."""


class OpenMax(Monitor):
    """s(x) = log(p_0 / (1 - p_0)), the log-odds of the unknown class of Algorithm 2 of Bendale and Boult.

    Of the `top` largest logits v_1 >= v_2 >= ... the share u_i = F_i(||v - m_i||) (top + 1 - i) / top moves
    to the unknown class: p = softmax of (sum u_i v_i, v_i (1 - u_i), all other v). m_i is the mean logits of
    the class of v_i and F_i a Weibull distribution of the `tail` largest distances from it in training
    (Algorithm 1), over rows that the network gets right; without labels every prediction counts as right.

    Log-odds order inputs as p_0 does and do not round to 1. Distances are Euclidean, as in OpenOOD and
    pytorch-ood; the paper adds a cosine. The distribution is fitted by maximum likelihood to the last digit.
    20 and 10 are the authors' numbers. At most `limit` rows per class, a uniform sample, are kept until
    fitting is done. A class without rows counts as infinitely far, and `remedy_` names it.
    """

    metadata = Metadata(
        score="log-odds of an unknown class that takes a share of the top logits, by a Weibull tail of "
        "distances from each class",
        needs=Needs(labels=Labels.OPTIONAL),
        fit="N * C",
        cost="N * C**2",
        state="8 * C * (C + 3)",
        paper="Bendale and Boult",
        year=2016,
    )

    centres_: Tensor
    smallest_: Tensor
    scale_: Tensor
    shape_: Tensor

    def __init__(self, *, tail: int = 20, top: int = 10, limit: int | None = 10_000, seed: int = 0) -> None:
        if tail < 1 or top < 1:
            raise InputError(f"expected tail and top of at least 1, got {tail} and {top}")
        self.tail = tail
        self.top = top
        self.limit = checked_limit(limit)
        self.seed = seed

    def _gather(self, traces: Iterator[Trace]) -> dict[str, Gathered]:
        return {"sample": ClassSample.of(traces, None, self.limit, self.seed)}

    def _describe(self, sample: ClassSample) -> None:
        found = sample.rows()
        self.centres_ = torch.zeros(self.classes_, self.classes_, dtype=torch.float64)
        # F of a class without rows is 1 at any distance.
        self.smallest_, self.scale_, self.shape_ = (
            torch.full((self.classes_,), value, dtype=torch.float64) for value in (0.0, 1.0, 1.0)
        )
        for label, rows in found.items():
            self.centres_[label] = rows.double().mean(dim=0)
            distances = (rows.double() - self.centres_[label]).square().sum(dim=1).sqrt()
            tail = distances.topk(min(self.tail, len(distances))).values
            self.smallest_[label] = tail.min()
            scale, shape = _weibull((tail - tail.min() + _SHIFT).numpy())
            self.scale_[label], self.shape_[label] = scale, shape
        flat = [label for label in found if self.shape_[label] == _STEP]
        self.remedy_ = _remedy([label for label in range(self.classes_) if label not in found], flat)

    def _score(self, trace: Trace) -> Tensor:
        logits = trace.logits.double()
        count = min(self.top, self.classes_)
        values, classes = logits.topk(self.classes_, dim=1)
        near, classes = values[:, :count], classes[:, :count]
        weight = torch.arange(count, 0, -1, dtype=torch.float64) / count
        moved = near * weight * self._distribution(self._distances(logits).gather(1, classes), classes)
        known = torch.cat([near - moved, values[:, count:]], dim=1)
        return moved.sum(dim=1) - log_sum_exp(known)

    def _distances(self, logits: Tensor) -> Tensor:
        """(N, classes): from the mean logits of every class."""
        squares = torch.addmm(self.centres_.square().sum(dim=1), logits, self.centres_.T, alpha=-2)
        return (squares + logits.square().sum(dim=1, keepdim=True)).clamp(min=0).sqrt()

    def _distribution(self, distances: Tensor, classes: Tensor) -> Tensor:
        """F of each distance, under the class beside it."""
        shifted = (distances - self.smallest_[classes] + _SHIFT).clamp(min=0)
        powers = ((shifted / self.scale_[classes]).log() * self.shape_[classes]).exp()
        return 1 - (-powers).exp()


def _weibull(values: NDArray[np.float64]) -> tuple[float, float]:
    """Scale and shape of the Weibull distribution that makes the values most likely.

    The shape k solves sum x^k log x / sum x^k - mean log x = 1 / k, and the scale is (mean x^k)^(1/k).
    """
    logs = np.log(values / values.max())
    spread = -float(logs.mean())  # the left side is at most this, so that k is at least 1 / spread
    if spread <= 1 / _STEP:
        return float(values.max()), _STEP

    def excess(inverse: float) -> float:
        powers = np.exp(logs / inverse)
        return float(powers @ logs / powers.sum() + spread - inverse)

    inverse = brentq(excess, spread * 1e-9, spread, xtol=1e-300, rtol=1e-14)
    return float(values.max() * np.exp(inverse * np.log(np.exp(logs / inverse).mean()))), 1 / inverse


def _remedy(unseen: list[int], flat: list[int]) -> str:
    parts = []
    if unseen:
        parts.append(
            f"the network got no row of {named(unseen)} right, so that all distances from them count as "
            "infinite; fit on more rows"
        )
    if flat:
        parts.append(
            f"there are {named(flat)} with one distance in the tail, so that everything farther away counts "
            "as unknown; fit on more rows"
        )
    return "; ".join(parts)
