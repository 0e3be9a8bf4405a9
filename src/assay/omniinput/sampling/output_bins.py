"""Bins: the reported ones, and the fine ones that reweighting needs."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.int64]

FINE_WIDTH = 0.1  # of beta times the width of a fine bin; 0.1 to 0.3 equals MBAR to 0.002 nats
MOST_FINE_BINS = 20_000


def fine_edges(edges: Array, low: float, high: float, steepest: float) -> Array:
    """Edges that cut every reported bin into equal parts, and continue in the same width to low and high."""
    widths = np.diff(edges)
    span = max(high, edges[-1]) - min(low, edges[0])
    width = max(FINE_WIDTH / max(steepest, 1e-300), span / MOST_FINE_BINS)
    width = min(width, float(widths.min()))
    parts = np.maximum(1, np.ceil(widths / width)).astype(int)
    inside = [
        np.linspace(left, right, n + 1)[:-1] for left, right, n in zip(edges, edges[1:], parts, strict=False)
    ]
    below = np.arange(edges[0] - width, low - 10 * width, -width)[::-1]
    # The last reported bin is closed: an output equal to its upper edge is inside.
    top = np.nextafter(edges[-1], np.inf)
    above = np.arange(top + width, high + 10 * width, width)
    return np.concatenate([below, *inside, [top], above])


def bin_index(outputs: Array, edges: Array) -> Index:
    """The reported bin of each output, -1 outside; bins are half-open, the last one is closed."""
    index = np.searchsorted(edges, outputs, side="right") - 1
    index[outputs == edges[-1]] = len(edges) - 2
    index[(outputs < edges[0]) | (outputs > edges[-1])] = -1
    return np.asarray(index, dtype=np.int64)
