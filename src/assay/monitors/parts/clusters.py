"""k-means with a fixed number of clusters or the elbow's."""

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

if TYPE_CHECKING:
    from sklearn.cluster import KMeans

ELBOW = "elbow"
MOST_CLUSTERS = 20
"""The elbow is looked for among 1 to 20 clusters, as many as there are distinct rows: the safety-monitor
benchmark found its own at 17."""

SAMPLE = 1000
"""Rows on which starts are tried."""

STEPS = 10
"""At most so many steps follow on all rows."""


def assigned(rows: Tensor, clusters: int | str, seed: int) -> Tensor:
    """The cluster of each row, numbered from 0; never more clusters than distinct rows."""
    if clusters == ELBOW:
        most = _distinct(rows, MOST_CLUSTERS)
        fits = [_fitted(rows, count, seed) for count in range(1, most + 1)]
        chosen = fits[elbow(np.array([fit.inertia_ for fit in fits])) - 1]
    else:
        chosen = _fitted(rows, _distinct(rows, int(clusters)), seed)
    return torch.from_numpy(chosen.labels_).long()


def elbow(inertias: NDArray[np.float64]) -> int:
    """The number of clusters where the curve of inertias for 1, 2, ... bends most.

    That is the point farthest below the chord from the first to the last, both axes scaled to [0, 1].

    >>> elbow(np.array([100.0, 10.0, 9.0, 8.0]))
    2
    """
    drop = inertias[0] - inertias[-1]
    if len(inertias) < 3 or drop <= 0:
        return len(inertias) if drop > 0 else 1
    height = (inertias - inertias[-1]) / drop
    chord = np.linspace(1.0, 0.0, len(inertias))
    return int(np.argmax(chord - height)) + 1


def _fitted(rows: Tensor, count: int, seed: int) -> "KMeans":
    """k-means from the best of three starts.

    Where there are many rows, the starts are tried on a sample, and the best one takes a few steps on all
    rows: a fifth of the time, and what is left undone are steps that hardly move a centre.
    """
    from sklearn.cluster import KMeans  # a second to import, and few monitors need it

    starts = KMeans(count, n_init=3, random_state=seed)
    sample = rows[np.sort(np.random.default_rng(seed).permutation(len(rows))[:SAMPLE])]
    if len(rows) <= SAMPLE or _distinct(sample, count) < count:
        return starts.fit(rows.numpy())
    best = starts.fit(sample.numpy()).cluster_centers_
    return KMeans(count, init=best, n_init=1, max_iter=STEPS).fit(rows.numpy())


def _distinct(rows: Tensor, most: int) -> int:
    """How many distinct rows there are, counted up to `most`; the first few mostly settle it."""
    few = len(torch.unique(rows[: 4 * most], dim=0))
    return min(most, few if few >= most else len(torch.unique(rows, dim=0)))
