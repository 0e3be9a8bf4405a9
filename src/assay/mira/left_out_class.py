"""A class left out: would it be noticed, had the network's head and its monitors never seen it?"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from assay.mira.panel import LEFT_OUT, Trial, scored, usual_monitors
from assay.network import Network
from assay.outputs import LOGITS
from assay.trace import Trace

MOST_CLASSES = 10
"""Classes that are left out in turn; of more, so many are drawn."""
FEWEST_ROWS = 2
"""Rows of a class, in training and in test, without which leaving it out says nothing."""


def class_trials(network: Network, fitted: Trace, clean: Trace, layer: str, seed: int) -> Iterator[Trial]:
    """Each class in turn as the unknown one: head and monitors of `layer` are fitted without its rows.

    No forward pass: features stay those of the network, which has seen the class. The head is the linear one
    of Gaussian classes with one covariance (`gaussian_head`), in closed form.
    """
    labels = clean.known_labels
    for label in _classes(fitted, clean, seed):
        known = fitted[fitted.known_labels != label]
        _, numbers = torch.unique(known.known_labels, return_inverse=True)
        head = gaussian_head(known.layer(layer).double(), numbers)
        seen, tested = _with_head(known, head, layer, numbers), _with_head(clean, head, layer)
        monitors = usual_monitors(network, [layer])
        scores = scored({place: monitor.fit(seen) for place, monitor in monitors.items()}, tested)
        out = (labels == label).numpy()
        both = {place: (score[~out], score[out]) for place, score in scores.items()}
        yield Trial(f"{LEFT_OUT}: {label}", both, np.flatnonzero(~out), np.flatnonzero(out))


def gaussian_head(features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """(weights (d, K), biases (K,)) of classes 0 to K - 1, none without rows: Fisher's linear discriminant.

    log p(class | z) of Gaussian classes with one covariance is linear in z, but for what all classes share.
    A thousandth of the mean variance is added (or, where classes are points, a millionth of that between
    them), so that few rows, or still features, give a head, too.
    """
    counts = torch.bincount(labels).double()
    sums = torch.zeros(len(counts), features.shape[1], dtype=torch.float64).index_add_(0, labels, features)
    means = sums / counts[:, None]
    centred = features - means[labels]
    covariance = centred.T @ centred / len(features)
    spread = float(features.var(dim=0, correction=0).mean()) or 1.0
    covariance.diagonal().add_(max(1e-3 * float(covariance.diagonal().mean()), 1e-6 * spread))
    weights: Tensor = torch.linalg.solve(covariance, means.T)
    biases = (counts / counts.sum()).log() - (means * weights.T).sum(dim=1) / 2
    return weights, biases


def _with_head(trace: Trace, head: tuple[Tensor, Tensor], layer: str, labels: Tensor | None = None) -> Trace:
    """Its features with the logits of another head, and labels numbered as the classes of that."""
    weights, biases = head
    features = trace.layer(layer)
    return Trace(features.double() @ weights + biases, {layer: features}, labels, outputs=LOGITS)


def _classes(fitted: Trace, clean: Trace, seed: int) -> list[int]:
    """At most ten of the classes with rows enough on both sides; none where fewer than three have any."""
    count = clean.logits.shape[1]
    there = [torch.bincount(trace.known_labels, minlength=count) for trace in (fitted, clean)]
    enough = (torch.stack(there) >= FEWEST_ROWS).all(dim=0).nonzero()[:, 0]
    if int((there[0] > 0).sum()) < 3:
        return []
    order = torch.randperm(len(enough), generator=torch.Generator().manual_seed(seed))
    return sorted(enough[order[:MOST_CLASSES]].tolist())
