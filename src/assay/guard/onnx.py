"""OnnxGuard: an exported guard, run by onnxruntime."""

import json
from collections.abc import Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path
from time import perf_counter
from typing import Any, Self

import torch
from torch import Tensor

from assay.errors import InputError, UndecidedError
from assay.guard.any_guard import AnyGuard
from assay.guard.export import EVIDENCE, FEATURES, METADATA, OUTPUTS, VERSION
from assay.guard.verdict import Answer, Verdict
from assay.network.batches import encoded
from assay.network.onnx import OnnxSession
from assay.network.onnx_graph import OnnxGraph
from assay.outputs import LOGITS
from assay.trace import Trace


class OnnxGuard(AnyGuard):
    """A guard written by `Guard.export`: `guard(inputs)` gives the same Verdict.

    `metadata` contains threshold, calibration, layers, the monitor and versions. `layers` are those whose
    features the file outputs: none unless it was exported with features=True.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        graph = OnnxGraph(path)
        properties = {entry.key: entry.value for entry in graph.model.metadata_props}
        if METADATA not in properties or not set(OUTPUTS) <= set(graph.outputs):
            raise InputError(
                f"{path}: expected a guard written by Guard.export, got another ONNX graph; "
                "for a network use Network.from_onnx"
            )
        self.metadata: dict[str, Any] = json.loads(properties[METADATA])
        if self.metadata["version"] > VERSION:
            raise InputError(
                f"{path}: a guard of version {self.metadata['version']}, this assay reads up to "
                f"{VERSION}; upgrade assay"
            )
        features = [name for name in graph.outputs if name.startswith(FEATURES)]
        self.evident = EVIDENCE in graph.outputs and "members" in self.metadata
        self.session = OnnxSession(graph, [*OUTPUTS, *([EVIDENCE] if self.evident else []), *features])

    def answer(self, inputs: Any) -> Answer:
        """Predict and judge in one pass; the Trace contains the outputs of the file."""
        start = perf_counter()
        tensors = encoded(inputs)
        outputs = self.session(tensors) if isinstance(tensors, Tensor) else self.session(**tensors)
        features = {layer: outputs[f"{FEATURES}{layer}"] for layer in self.layers}
        trace = Trace(outputs["logits"].float(), features, outputs=LOGITS)
        verdict = Verdict(
            trace.predictions,
            outputs["score"],
            outputs["alarm"].to(torch.bool),
            evidence=outputs[EVIDENCE] if self.evident else None,
            members=self.members,
        )
        return Answer(verdict, trace, perf_counter() - start, 0.0)

    def judge(self, trace: Trace) -> Verdict:
        """Judge the inputs of the Trace, since the graph starts from them."""
        if trace.inputs is None:
            raise UndecidedError(
                "expected a Trace with its inputs, all that an exported guard can judge, got one without; "
                "observe with keep_inputs=True"
            )
        return self(trace.inputs)

    def watching(self, layers: Sequence[str]) -> Self:
        """Itself: a graph outputs only the layers it was exported with."""
        return self

    def decided_threshold(self) -> Tensor:
        return torch.tensor(self.metadata["threshold"], dtype=torch.float64)

    @cached_property
    def layers(self) -> tuple[str, ...]:
        names = self.session.names
        return tuple(name.removeprefix(FEATURES) for name in names if name.startswith(FEATURES))

    @property
    def separable(self) -> bool:
        return False

    @property
    def monitor_name(self) -> str:
        return str(self.metadata["monitor"]).partition("(")[0]

    @property
    def members(self) -> tuple[str, ...]:
        return tuple(self.metadata.get("members", (self.monitor_name,)))

    @property
    def calibration(self) -> dict[str, Any]:  # type: ignore[override]
        return dict(self.metadata["calibration"])

    @property
    def network_fingerprint(self) -> str:
        return str(self.metadata["network"])

    @property
    def fingerprint(self) -> str:
        return str(self.metadata["fingerprint"])

    def __repr__(self) -> str:
        return f"OnnxGuard({str(self.path)!r})"
