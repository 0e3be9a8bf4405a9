"""OnnxGuard: an exported guard, run by onnxruntime."""

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from assay.errors import InputError
from assay.guard.export import FEATURES, METADATA, OUTPUTS, VERSION
from assay.guard.guard import Verdict
from assay.network.batches import encoded
from assay.network.onnx import OnnxSession
from assay.network.onnx_graph import OnnxGraph
from assay.trace import Trace


class OnnxGuard:
    """What `Guard.export` wrote, ready to judge: `guard(inputs)` gives the same Verdict.

    `metadata` holds threshold, calibration, layers, the monitor and versions. `layers` are those whose
    features the file gives, none unless it was exported with features=True.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        graph = OnnxGraph(path)
        held = {entry.key: entry.value for entry in graph.model.metadata_props}
        if METADATA not in held or not set(OUTPUTS) <= set(graph.outputs):
            raise InputError(
                f"{path}: expected a guard written by Guard.export, got another ONNX graph; "
                "for a network use Network.from_onnx"
            )
        self.metadata: dict[str, Any] = json.loads(held[METADATA])
        if self.metadata["version"] > VERSION:
            raise InputError(
                f"{path}: holds a guard of version {self.metadata['version']}, this assay reads up to "
                f"{VERSION}; upgrade assay"
            )
        self.layers = tuple(
            name.removeprefix(FEATURES) for name in graph.outputs if name.startswith(FEATURES)
        )
        self.session = OnnxSession(graph, [*OUTPUTS, *(f"{FEATURES}{layer}" for layer in self.layers)])

    def __call__(self, inputs: Any) -> Verdict:
        """Predict and judge a batch of one or of many."""
        return self.answer(inputs)[1]

    def answer(self, inputs: Any) -> tuple[Trace, Verdict]:
        """What the network did, as far as the file tells, and the verdict; one pass gives both."""
        tensors = encoded(inputs)
        outputs = self.session(tensors) if isinstance(tensors, Tensor) else self.session(**tensors)
        features = {layer: outputs[f"{FEATURES}{layer}"] for layer in self.layers}
        trace = Trace(outputs["logits"].float(), features)
        return trace, Verdict(trace.predictions, outputs["score"], outputs["alarm"].to(torch.bool))

    @property
    def form(self) -> Mapping[str, tuple[tuple[Any, ...], str]]:
        """Shape and type of every input, by name; a free axis is a name or None."""
        return {name: (tuple(entry.shape), entry.type) for name, entry in self.session.takes.items()}

    @property
    def fingerprint(self) -> str:
        """That of the guard it was exported from."""
        return str(self.metadata["fingerprint"])

    def __repr__(self) -> str:
        return f"OnnxGuard({str(self.path)!r})"
