"""k-means with a fixed number of clusters or the elbow's."""

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from torch import Tensor

ELBOW = "elbow"
MOST_CLUSTERS = 10
"""The elbow is looked for among 1 to 10 clusters, as many as there are distinct rows."""


def assigned(rows: Tensor, clusters: int | str, seed: int) -> Tensor:
    """The cluster of each row, numbered from 0; never more clusters than distinct rows."""
    distinct = len(torch.unique(rows, dim=0))
    if clusters == ELBOW:
        fits = [_fitted(rows, count, seed) for count in range(1, min(MOST_CLUSTERS, distinct) + 1)]
        chosen = fits[elbow(np.array([fit.inertia_ for fit in fits])) - 1]
    else:
        chosen = _fitted(rows, min(int(clusters), distinct), seed)
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


def _fitted(rows: Tensor, count: int, seed: int) -> KMeans:
    return KMeans(count, n_init=3, random_state=seed).fit(rows.numpy())
