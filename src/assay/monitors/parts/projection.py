"""Two dimensions out of many, kept as plain tensors: chosen neurons, PCA or Isomap."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components, shortest_path
from scipy.spatial.distance import cdist
from torch import Tensor

from assay.errors import InputError

SIMPLE, PRINCIPAL, GEODESIC = "simple", "pca", "isomap"
KINDS = (None, SIMPLE, PRINCIPAL, GEODESIC)


def chosen_neurons(neurons: Sequence[int], width: int) -> dict[str, Tensor]:
    if max(neurons) >= width:
        raise InputError(
            f"expected neurons below {width}, the width of the layer, got {max(neurons)}; choose others"
        )
    return {"neurons": torch.tensor(neurons)}


def principal(rows: Tensor) -> dict[str, Tensor]:
    """The plane of largest variance."""
    from sklearn.decomposition import PCA

    fit = PCA(min(2, *rows.shape), svd_solver="full").fit(rows.double().numpy())
    return {
        "mean": torch.from_numpy(fit.mean_).float(),
        "components": torch.from_numpy(np.ascontiguousarray(fit.components_.T)).float(),
    }


def geodesic(rows: Tensor, landmarks: int, neighbours: int, seed: int) -> dict[str, Tensor]:
    """Isomap (Tenenbaum et al. 2000) of at most `landmarks` of the rows, as the tensors its out-of-sample
    extension needs: n landmarks cost n * (n + d) numbers to keep and n^3 steps to fit.

    Written out because scikit-learn's cannot be stored without pickle, warns where the neighbours' graph
    falls apart, and starts its sparse eigensolver from the global random state; tested against it.
    """
    order = np.random.default_rng(seed).permutation(len(rows))[:landmarks]
    chosen = torch.unique(rows[np.sort(order)].double(), dim=0)
    if len(chosen) < 3:
        raise InputError(
            f"expected at least 3 distinct rows for projection='isomap', got {len(chosen)}; "
            "fit on more data or use projection=None"
        )
    reach = min(neighbours, len(chosen) - 1)
    lengths = torch.from_numpy(_geodesics(chosen.numpy(), reach))
    kernel = -0.5 * lengths**2
    means = kernel.mean(dim=0)
    values, vectors = torch.linalg.eigh(kernel - means - means[:, None] + means.mean())
    values, vectors = values[-2:].flip(0), vectors[:, -2:].flip(1)
    signs = vectors.gather(0, vectors.abs().argmax(dim=0, keepdim=True)).sign()
    # A coordinate without extent (eigenvalue zero) stays zero instead of dividing by nothing.
    scales = torch.where(values > 1e-12 * values.max(), values, torch.inf).rsqrt()
    return {
        "landmarks": chosen,
        "geodesics": lengths,
        "kernel_means": means,
        "axes": (vectors * signs * scales).contiguous(),
        "neighbours": torch.tensor(reach),
    }


def _geodesics(points: NDArray[np.float64], neighbours: int) -> NDArray[np.float64]:
    """Shortest paths along the neighbours' graph; parts of it are joined where they come closest."""
    from sklearn.neighbors import kneighbors_graph

    graph = kneighbors_graph(points, neighbours, mode="distance").tolil()
    count, parts = connected_components(graph, directed=False)
    for one, other in combinations(range(count), 2):
        mine, theirs = np.flatnonzero(parts == one), np.flatnonzero(parts == other)
        between = cdist(points[mine], points[theirs])
        row, column = np.unravel_index(between.argmin(), between.shape)
        graph[mine[row], theirs[column]] = between[row, column]
    lengths: NDArray[np.float64] = shortest_path(graph.tocsr(), directed=False)
    return lengths


def projected(projection: dict[str, Tensor], rows: Tensor) -> Tensor:
    """The rows under a projection from above; an empty one leaves them as they are."""
    if "neurons" in projection:
        return rows[:, projection["neurons"]]
    if "components" in projection:
        return (rows - projection["mean"]) @ projection["components"]
    if "landmarks" in projection:
        return _unrolled(projection, rows.double())
    return rows


def _unrolled(projection: dict[str, Tensor], rows: Tensor) -> Tensor:
    """Isomap's out-of-sample extension: geodesics through the nearest landmarks, centred as in fit."""
    distances = torch.cdist(rows, projection["landmarks"])
    near, index = distances.topk(int(projection["neighbours"]), dim=1, largest=False)
    lengths = (projection["geodesics"][index] + near[:, :, None]).amin(dim=1)
    kernel = -0.5 * lengths**2
    means = projection["kernel_means"]
    return (kernel - means - kernel.mean(dim=1, keepdim=True) + means.mean()) @ projection["axes"]
