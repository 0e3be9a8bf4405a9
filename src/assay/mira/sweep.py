"""Test inputs under perturbation: what the network does with them at each epsilon, computed once."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from assay.errors import InputError
from assay.mira.distance import FeatureDistance
from assay.mira.perturbation import Perturbation
from assay.network import Network, length
from assay.network.batches import Batches
from assay.network.buffers import RowBuffer
from assay.network.compiled import uncompiled
from assay.network.taps import PENULTIMATE
from assay.network.watched_layers import layer_names
from assay.trace import Inputs, Trace

Pair = tuple[Inputs, Tensor]

_PILOT = 256  # inputs on which the range is looked for first, at most


@dataclass(frozen=True)
class Reading:
    """At one epsilon: squared distances (one row per FeatureDistance, N columns) and what was right.

    `order_hint` is that of clean inputs (`Trace.order_hint`), and empty for others.
    """

    distances: Tensor
    correct: Tensor
    order_hint: str = ""

    @property
    def accuracy(self) -> float:
        return float(self.correct.double().mean())


class Sweep:
    """`at(epsilon)` is one forward pass over the test inputs; a second call costs nothing.

    It keeps the inputs as they are, one direction per input, and N numbers per epsilon and distance; features
    of one epsilon at a time.
    """

    def __init__(
        self,
        network: Network,
        perturbation: Perturbation,
        distances: Sequence[FeatureDistance],
        *,
        tested_on_training: bool = False,
    ) -> None:
        self.network = network
        self.perturbation = perturbation
        self.distances = distances
        self.tested_on_training = tested_on_training
        self._readings: dict[float, Reading] = {}

    def __len__(self) -> int:
        return len(self.perturbation.labels)

    def at(self, epsilon: float) -> Reading:
        if epsilon not in self._readings:
            trace = self.observe(epsilon)
            distances = torch.stack([distance.squared(trace) for distance in self.distances])
            if not torch.isfinite(distances).all():
                raise InputError(
                    f"expected finite features of perturbed inputs, got NaN or infinity at epsilon "
                    f"{epsilon:.4g}; bound the inputs with low and high, or pass a smaller epsilon_range"
                )
            hint = "" if epsilon else trace.order_hint
            self._readings[epsilon] = Reading(distances, trace.correct, hint)
        return self._readings[epsilon]

    def observe(self, epsilon: float, rows: Tensor | None = None) -> Trace:
        """The Trace of all inputs, or of some rows, moved by epsilon; one batch of moved inputs at a time."""
        moved = _PerturbedBatches(self.perturbation, epsilon, self.network.batch_size, rows)
        # A generator of its own: a DataLoader otherwise draws from the global random state.
        return self.network.observe(DataLoader(moved, batch_size=None, generator=torch.Generator()))

    def pilot(self, seed: int) -> "Pilot | None":
        """Accuracy on a sample, which is cheap; None if there are too few test inputs for one."""
        size = min(_PILOT, len(self) // 6)
        if size < _PILOT // 4:
            return None
        chosen = np.random.default_rng(seed).choice(len(self), size, replace=False)
        return Pilot(self, torch.from_numpy(np.sort(chosen)))


@dataclass(frozen=True)
class Pilot:
    """Accuracy on a sample of the test inputs."""

    sweep: Sweep
    rows: Tensor

    def accuracy(self, epsilon: float) -> float:
        return float(self.sweep.observe(epsilon, self.rows).correct.double().mean())


class _PerturbedBatches(Dataset[Pair]):
    """Batches of moved inputs with their labels, made when they are read."""

    def __init__(self, perturbation: Perturbation, epsilon: float, size: int, rows: Tensor | None) -> None:
        self.perturbation, self.epsilon = perturbation, epsilon
        count = len(perturbation.labels)
        self.parts: list[slice | Tensor] = (
            [slice(start, start + size) for start in range(0, count, size)]
            if rows is None
            else list(torch.split(rows, size))
        )

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, number: int) -> Pair:
        if number >= len(self.parts):
            raise IndexError(number)
        part = self.parts[number]
        return self.perturbation.moved(part, self.epsilon), self.perturbation.labels[part]


def labelled_inputs(network: Network, data: Any, name: str) -> Pair:
    """All inputs and labels of `data`, encoded but not embedded; without a copy if they come in one piece."""
    batches = network.batches(data)
    if batches.whole is not None:
        inputs, labels = batches.whole, batches.labels
        if not length(inputs):
            raise InputError(f"expected at least one {name} input, got none; pass data that is not empty")
    else:
        inputs, labels = _concatenated(batches)
    if labels is None:
        raise InputError(
            f"expected {name} data with labels, got inputs alone; "
            "pass (inputs, labels), or a DataLoader of both"
        )
    return inputs, labels


def _concatenated(batches: Batches) -> tuple[Inputs, Tensor | None]:
    buffers: dict[str, RowBuffer] = {}
    known = RowBuffer()
    unlabelled = False
    for inputs, labels in batches:
        for name, tensor in ({"": inputs} if isinstance(inputs, Tensor) else inputs).items():
            buffers.setdefault(name, RowBuffer()).add(tensor)
        if labels is None:
            unlabelled = True
        else:
            known.add(labels)
    tensors = {name: buffer.tensor() for name, buffer in buffers.items()}
    return tensors.get("", tensors), None if unlabelled else known.tensor()


def watching(network: Network, layers: Sequence[str]) -> Network:
    """The network itself if it watches exactly these layers, else a copy that does."""
    if not isinstance(network, Network):
        raise InputError(
            f"expected an assay.Network, got {type(network).__name__}; wrap the module: assay.Network(module)"
        )
    network.expect_one_row_per_input("monitorability")
    wanted = tuple(dict.fromkeys(layers))
    if wanted == network.layers:
        return network
    known = list(network.layers)
    if getattr(network.module, "differentiable", True):  # an ONNX session gives only layers it was opened for
        known += [PENULTIMATE, *layer_names(uncompiled(network.module))]
    if missing := [name for name in wanted if name not in known]:
        raise InputError(
            f"expected layers of {network!r}, got {missing}; choose from {list(dict.fromkeys(known))}"
        )
    twin = copy.copy(network)
    twin.layers = wanted
    return twin
