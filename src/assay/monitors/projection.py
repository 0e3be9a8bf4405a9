"""Two dimensions out of many, kept as plain tensors: chosen neurons, PCA or Isomap."""

from collections.abc import Sequence

import numpy as np
import torch
from scipy.sparse.csgraph import connected_components
from sklearn.decomposition import PCA
from sklearn.manifold import Isomap
from sklearn.neighbors import kneighbors_graph
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
    fit = PCA(min(2, *rows.shape), svd_solver="full").fit(rows.double().numpy())
    return {
        "mean": torch.from_numpy(fit.mean_).float(),
        "components": torch.from_numpy(np.ascontiguousarray(fit.components_.T)).float(),
    }


def geodesic(rows: Tensor, landmarks: int, neighbors: int, seed: int) -> dict[str, Tensor]:
    """Isomap (Tenenbaum et al. 2000) of at most `landmarks` of the rows, as the tensors its out-of-sample
    extension needs: n landmarks cost n * (n + d) numbers to keep and n^3 steps to fit.

    The neighbourhood grows until the graph is connected, so that every geodesic is finite.
    """
    order = np.random.default_rng(seed).permutation(len(rows))[:landmarks]
    chosen = torch.unique(rows[np.sort(order)].double(), dim=0)
    if len(chosen) < 3:
        raise InputError(
            f"expected at least 3 distinct rows for projection='isomap', got {len(chosen)}; "
            "fit on more data or use projection=None"
        )
    reach = min(neighbors, len(chosen) - 1)
    while connected_components(kneighbors_graph(chosen.numpy(), reach), directed=False)[0] > 1:
        reach = min(2 * reach, len(chosen) - 1)
    fit = Isomap(n_neighbors=reach, n_components=2, eigen_solver="dense").fit(chosen.numpy())
    kernel = -0.5 * torch.from_numpy(fit.dist_matrix_).double() ** 2
    values, vectors = (
        torch.from_numpy(part) for part in (fit.kernel_pca_.eigenvalues_, fit.kernel_pca_.eigenvectors_)
    )
    # A coordinate without extent (eigenvalue zero) stays zero instead of dividing by nothing.
    scales = torch.where(values > 1e-12 * values.max(), values, torch.inf).rsqrt()
    return {
        "landmarks": chosen,
        "geodesics": torch.from_numpy(fit.dist_matrix_).double(),
        "kernel_means": kernel.mean(dim=0),
        "axes": (vectors * scales).contiguous(),
        "neighbors": torch.tensor(reach),
    }


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
    near, index = distances.topk(int(projection["neighbors"]), dim=1, largest=False)
    lengths = (projection["geodesics"][index] + near[:, :, None]).amin(dim=1)
    kernel = -0.5 * lengths**2
    means = projection["kernel_means"]
    return (kernel - means - kernel.mean(dim=1, keepdim=True) + means.mean()) @ projection["axes"]
