"""The area under a precision curve over log-recall, exact for its straight pieces."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def log_recall_range(log_recall: Array) -> tuple[float, float]:
    """The first and the last log-recall of a recall above zero; NaN if there is none."""
    finite = log_recall[np.isfinite(log_recall)]
    return (float(finite[0]), float(finite[-1])) if len(finite) else (np.nan, np.nan)


def area_up_to(log_recall: Array, precision: Array, ends: Array) -> Array:
    """The area from the curve's first recall above zero to each of `ends`.

    Points where nothing new was recalled are vertical steps without area. Beyond its own range the curve is
    continued as a constant.
    """
    finite = np.isfinite(log_recall)
    x, y = log_recall[finite], precision[finite]
    if not len(x):
        return np.zeros(len(ends))
    areas = np.concatenate([[0.0], np.cumsum(np.diff(x) * (y[1:] + y[:-1]) / 2)])
    inside = np.clip(ends, x[0], x[-1])
    left = np.clip(np.searchsorted(x, inside, side="right") - 1, 0, len(x) - 1)
    right = np.minimum(left + 1, len(x) - 1)
    width = x[right] - x[left]
    share = np.divide(inside - x[left], width, out=np.zeros(len(ends)), where=width > 0)
    height = y[left] + share * (y[right] - y[left])
    beyond = (ends - inside) * np.where(ends < inside, y[0], y[-1])
    return np.asarray(areas[left] + (inside - x[left]) * (y[left] + height) / 2 + beyond)


def whole_area(log_recall: Array, precision: Array) -> float:
    """The area over the curve's own range."""
    _, last = log_recall_range(log_recall)
    return 0.0 if np.isnan(last) else float(area_up_to(log_recall, precision, np.array([last]))[0])
