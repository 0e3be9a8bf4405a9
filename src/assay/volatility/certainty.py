"""Volatility in Certainty (VC), Eqs. 4 to 7 of "Volatility in Certainty (VC): A Metric for Detecting
Adversarial Perturbations During Inference in Neural Network Classifiers".

The certainty of a prediction is the margin between its two largest probabilities. Sorted, the margins of N
predictions form a curve; VC is the mean squared log-ratio of its neighbours over the central 60 %.

The edges, where the paper is silent:

- Eq. 7 is taken literally: k runs over the whole numbers from 0.2 N to 0.8 N, both included (ranks count from
  one), and the sum is divided by 0.6 N, not by the number of its terms.
- Fewer than five predictions have no central 60 % and are an error.
- Equal neighbours (ties) are not zero but (log(d / (d + e0)))^2, which is about (e0 / d)^2.
- A margin of exactly zero, a tie of the two best classes, makes the numerator of Eq. 6 zero. It is read as
  2^-53, the resolution of a double, so that VC stays finite and is large for a network that cannot choose.
- VC depends on N: the gaps shrink as N grows. Compare values of equal N only.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from assay.errors import InputError
from assay.volatility.probabilities import Array, checked_rows, sure_row

OFFSET = 1e-6
"""The paper's epsilon_0."""
FEWEST = 5
"""The smallest N with a central 60 %."""
RESOLUTION = 2.0**-53
"""The value that stands for a margin of zero in a numerator."""

Doubles = npt.NDArray[np.float64]

_MANY_CLASSES = 32
_VALUES_PER_BLOCK = 40_960


def volatility_in_certainty(probabilities: Any, *, offset: float = OFFSET) -> float:
    """VC of Eq. 7 for (N, classes) probabilities, as an array, a tensor or a Trace.

    Time is that of one pass for the margins and one sort of N numbers; memory is N doubles besides the input.

    >>> volatility_in_certainty([[0.5 + m / 2, 0.5 - m / 2] for m in (0.1, 0.2, 0.4, 0.6, 0.8)], offset=0.0)
    0.4026...
    """
    return central_mean(np.sort(margins(checked_rows(probabilities))), offset)


def log_volatility(probabilities: Any, *, offset: float = OFFSET) -> float:
    """The natural logarithm of VC, which is what the paper correlates with accuracy."""
    return float(np.log(volatility_in_certainty(probabilities, offset=offset)))


def local_volatilities(probabilities: Any, *, offset: float = OFFSET) -> Doubles:
    """The N - 1 local volatilities vc_k of Eq. 6, in ascending order of certainty."""
    return ratios(np.sort(margins(checked_rows(probabilities))), offset)


def margins(rows: Array) -> Doubles:
    """Eq. 4: the largest minus the second largest probability of each row, in double precision."""
    found = np.empty(len(rows))
    block = max(1, _VALUES_PER_BLOCK // rows.shape[1])
    # Many rows of few classes: a running first and second over columns is twice as fast as a partition.
    long = len(rows) > rows.shape[1] and rows.shape[1] <= _MANY_CLASSES
    top_two = _by_columns if long else _by_partition
    for start in range(0, len(rows), block):
        first, second = top_two(rows[start : start + block])
        np.subtract(first, second, out=found[start : start + block], dtype=np.float64)
    return found


def margin(probabilities: Any, classes: int) -> float | None:
    """Eq. 4 of a single row that is clearly valid, to the same bit; None where that needs a closer look.

    Streams come row by row, and for ten numbers the calls of numpy cost many times the arithmetic.
    """
    row = sure_row(probabilities, classes) if classes <= _MANY_CLASSES else None
    if row is None:
        return None
    ordered = sorted(row)
    return ordered[-1] - ordered[-2]


def ratios(ordered: Doubles, offset: float = OFFSET) -> Doubles:
    """Eq. 6 over the neighbours of ascending margins."""
    return np.asarray(np.log(np.maximum(ordered[1:], RESOLUTION) / _denominators(ordered[:-1], offset)) ** 2)


def central(count: int) -> tuple[int, int]:
    """The first and last k of Eq. 7, counted from one: the whole numbers in [0.2 N, 0.8 N]."""
    return -(-count // 5), 4 * count // 5


def central_mean(ordered: Doubles, offset: float = OFFSET) -> float:
    """Eq. 7 for ascending margins."""
    count = len(ordered)
    if count < FEWEST:
        raise InputError(
            f"expected at least {FEWEST} predictions, got {count}; pass more: fewer have no central 60 %"
        )
    first, last = central(count)
    return float(ratios(ordered[first - 1 : last + 1], offset).sum() / (0.6 * count))


def _denominators(lower: Doubles, offset: float) -> Doubles:
    if not offset >= 0:
        raise InputError(f"expected an offset of at least 0, got {offset}; the paper has 1e-6")
    return np.maximum(lower + offset, RESOLUTION)


def _by_columns(rows: Array) -> tuple[Array, Array]:
    columns = np.ascontiguousarray(rows.T)
    first, second = np.maximum(columns[0], columns[1]), np.minimum(columns[0], columns[1])
    for column in columns[2:]:
        np.maximum(second, np.minimum(first, column), out=second)
        np.maximum(first, column, out=first)
    return first, second


def _by_partition(rows: Array) -> tuple[Array, Array]:
    top = np.partition(rows, rows.shape[1] - 2, axis=1)
    return top[:, -1], top[:, -2]
