"""A guard as one ONNX graph: inputs in; logits, score and alarm out, without torch.

The network's graph and the monitor's, joined by name. The monitor's is what a tracer sees of `Monitor.score`,
so there is one formula per monitor; a monitor whose score is not made of tensor operations gives the reason
in `Monitor.obstacle`.
"""

import json
import os
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from assay.errors import InputError
from assay.extras import expect_installed
from assay.network import in_single_precision, length, rows, zeros_of
from assay.network.graph import NEWEST, OPSET, NetworkGraph, traced
from assay.network.onnx_names import rename, tensor_names
from assay.outputs import LOGITS
from assay.storage import write_whole
from assay.trace import Inputs, Trace
from assay.version import VERSION as ASSAY_VERSION

if TYPE_CHECKING:
    from assay.guard.guard import Guard

VERSION = 1
"""Version of the names of outputs and metadata."""

OUTPUTS = ("logits", "score", "alarm")
EVIDENCE = "evidence"
"""Output of a guard whose monitor is a combination: each member's evidence (rows, members)."""
FEATURES = "features/"
METADATA = "assay"
COMPARED = 3
"""Rows on which a fresh file is compared with the guard; any number but the two it was traced on."""


def write_graph(
    guard: "Guard", path: str | os.PathLike[str], example: Any = None, features: bool = False
) -> None:
    """Write `guard` to `path` as ONNX, whole or not at all, after comparing both on a few rows."""
    from assay.guard.onnx import OnnxGuard

    expect_installed("onnx", "onnxruntime")
    _check(guard)
    inputs = _example(guard, example)
    single = _in_single_precision(guard)
    network = single.network.graph(_repeated(inputs, 2), _layers(guard, features))
    judge = _judge(single, network, _repeated(inputs, 2), features)
    model = joined(network, judge, _further_outputs(guard, network, features))
    _describe(model, guard)
    content = _serialised(model)

    def write(temporary: str) -> None:
        Path(temporary).write_bytes(content)
        _compare(single, OnnxGuard(temporary), _repeated(inputs, COMPARED))

    write_whole(path, write)


class Judge(nn.Module):
    """The network's output, layers and inputs to logits, score and alarm, for a tracer."""

    def __init__(self, guard: "Guard", network: NetworkGraph, inputs: Sequence[str], features: bool) -> None:
        super().__init__()
        self.guard = guard
        self.network = network
        self.names = list(network.layers)
        self.inputs = inputs
        self.features = features

    def forward(self, output: Tensor, *parts: Tensor) -> tuple[Tensor, ...]:
        logits = self.network.to_logits(output).float()
        layers, tensors = parts[: len(self.names)], parts[len(self.names) :]
        inputs: Inputs = tensors[0] if self.inputs == [""] else dict(zip(self.inputs, tensors, strict=True))
        features = {
            name: self.network.read(name, part, inputs) for name, part in zip(self.names, layers, strict=True)
        }
        trace = Trace(logits, features, inputs=inputs, outputs=LOGITS)
        score, evidence = self.guard.monitor.score_and_evidence(trace)
        # Zero times what is not finite is NaN: no row with such a value passes.
        watched = [logits, *(features[name] for name in self.guard.monitor.layers), *tensors]
        for part in watched:
            if part.is_floating_point():
                score = score + (part.flatten(1) * 0).sum(dim=1).double()
        found = (logits, score, ~self._passes(score, trace))
        evident = () if evidence is None else (evidence,)
        return *found, *evident, *(features.values() if self.features else ())

    def _passes(self, score: Tensor, trace: Trace) -> Tensor:
        threshold = self.guard.decided_threshold()
        if threshold.ndim == 1:
            threshold = threshold[trace.predictions]
        # Comparisons with NaN are false, and so is the second one for infinity under an infinite threshold.
        return (score <= threshold) & (score.abs() <= torch.finfo(torch.float64).max)


def joined(network: NetworkGraph, judge: Any, kept: Sequence[str]) -> Any:
    """One model: the judge's inputs are tensors of the network; all its other names get a prefix.

    `kept` are outputs of the judge besides logits, score and alarm.
    """
    import onnx

    model = onnx.ModelProto()
    model.CopyFrom(network.model)
    graph = model.graph
    moved = {name: f"network/{name}" for name in tensor_names(graph) & {*OUTPUTS, *kept}}
    rename(graph, moved)
    del graph.output[:]
    places = {"output": network.logits}
    places |= {f"layer/{name}": tensor for name, tensor in network.layers.items()}
    places |= {f"input/{number}": name for number, name in enumerate(network.inputs)}
    places = {name: moved.get(place, place) for name, place in places.items()}
    places |= {name: name for name in (*OUTPUTS, *kept)}
    judged = judge.graph
    rename(judged, {name: places.get(name, f"guard/{name}") for name in tensor_names(judged)})
    for node in judged.node:
        node.name = f"guard/{node.name}"
    graph.node.extend(judged.node)
    graph.initializer.extend(judged.initializer)
    outputs = {output.name: output for output in judged.output}
    graph.output.extend(outputs[name] for name in (*OUTPUTS, *kept))
    model.ir_version = max(model.ir_version, judge.ir_version)
    return model


def _check(guard: "Guard") -> None:
    guard.decided_threshold()
    if guard.network.rows is not None:
        raise InputError(
            f"expected a network with one row per input to export, got {guard.network!r} with "
            f"{guard.network.rows!r}; export the network alone, and judge its rows in torch"
        )
    if guard.monitor.obstacle:
        raise InputError(
            f"expected a monitor that is a function of logits, features and inputs, got "
            f"{type(guard.monitor).__name__}: {guard.monitor.obstacle}; export a guard with another monitor"
        )
    if guard.monitor.needs.inputs and not guard.monitor.needs.encoded and guard.network.embeds:
        raise InputError(
            f"expected a monitor that reads logits or features, got {type(guard.monitor).__name__}, which "
            "reads embedded inputs; export a guard with another monitor"
        )


def _in_single_precision(guard: "Guard") -> "Guard":
    """The same guard for a network in single precision: runtimes for the CPU know no other, or hardly."""
    network = guard.network.in_single_precision()
    if network is guard.network:
        return guard
    single = copy(guard)
    single.network = network
    return single


def _example(guard: "Guard", example: Any) -> Inputs:
    return in_single_precision(_inputs_like(guard, example))


def _inputs_like(guard: "Guard", example: Any) -> Inputs:
    if example is not None:
        inputs = guard.network.encode(example)
        if not length(inputs):
            raise InputError("expected at least one row as the example, got none; pass inputs[:1]")
        return inputs
    if not guard.network.form:
        raise InputError(
            "expected inputs to take shape and type from, got a network that has observed none; "
            "pass export(path, example=inputs[:1])"
        )
    return zeros_of(guard.network.form, 1)


def _repeated(inputs: Inputs, count: int) -> Inputs:
    return rows(inputs, torch.arange(count) % length(inputs))


def _layers(guard: "Guard", features: bool) -> tuple[str, ...]:
    return guard.network.layers if features else guard.monitor.layers


def _further_outputs(guard: "Guard", network: NetworkGraph, features: bool) -> list[str]:
    """Names of the outputs besides logits, score and alarm."""
    evidence = [EVIDENCE] if guard.monitor.member_names else []
    return evidence + [f"{FEATURES}{layer}" for layer in network.layers if features]


def _judge(guard: "Guard", network: NetworkGraph, example: Inputs, features: bool) -> Any:
    named = {"": example} if isinstance(example, Tensor) else dict(example)
    layers = list(network.layers)
    module = Judge(guard, network, list(named), features)
    inputs = ["output", *(f"layer/{name}" for name in layers), *(f"input/{n}" for n in range(len(named)))]
    outputs = [*OUTPUTS, *_further_outputs(guard, network, features)]
    opset = network.opset if OPSET <= network.opset <= NEWEST else NEWEST
    arguments = [network.shown[""], *(network.shown[name] for name in layers), *named.values()]
    try:
        model = traced(module, arguments, inputs, outputs, opset)
    except (torch.onnx.errors.OnnxExporterError, RuntimeError) as error:
        raise InputError(
            f"expected a monitor made of tensor operations, got {type(guard.monitor).__name__} "
            f"({str(error).splitlines()[0]:.200}); implement `_traced_score`, or export another monitor"
        ) from error
    return _at_opset(network, model)


def _at_opset(network: NetworkGraph, judge: Any) -> Any:
    """Both graphs at one opset; the older one is converted."""
    from onnx import version_converter

    theirs, ours = network.opset, judge.opset_import[0].version
    if theirs < ours:
        network.model.CopyFrom(version_converter.convert_version(network.model, ours))
    return version_converter.convert_version(judge, theirs) if theirs > ours else judge


def _describe(model: Any, guard: "Guard") -> None:
    """Metadata about the guard, for readers of the file."""
    import onnx

    facts = {
        "version": VERSION,
        "assay_version": ASSAY_VERSION,
        "monitor": repr(guard.monitor),
        "threshold": guard.decided_threshold().tolist(),
        "calibration": guard.calibration,
        "layers": list(guard.monitor.layers),
        "members": list(guard.members),
        "network": guard.network.fingerprint,
        "fingerprint": guard.fingerprint,
    }
    properties = {entry.key: entry.value for entry in model.metadata_props}
    onnx.helper.set_model_props(model, properties | {METADATA: json.dumps(facts)})
    model.producer_name, model.producer_version = "assay", ASSAY_VERSION


def _serialised(model: Any) -> bytes:
    import onnx
    from google.protobuf.message import EncodeError  # type: ignore[import-untyped]

    try:
        onnx.checker.check_model(model)
        content: bytes = model.SerializeToString()
    except (onnx.checker.ValidationError, EncodeError, ValueError) as error:
        raise InputError(
            f"expected a network whose graph ONNX allows in one file (2 GB), got one it refuses ({error}); "
            "guard a smaller network"
        ) from error
    return content


def _compare(guard: "Guard", written: Any, inputs: Inputs) -> None:
    """An error if the graph scores differently from the guard."""
    ours, theirs = guard(inputs).scores, written(inputs).scores
    close = torch.isclose(ours, theirs, rtol=1e-4, atol=1e-4, equal_nan=True)
    if not close.all():
        row = int((~close).nonzero()[0])
        raise InputError(
            f"expected the graph to score as {type(guard.monitor).__name__} does, got {float(theirs[row]):g} "
            f"instead of {float(ours[row]):g}; implement `_traced_score` in the monitor, or pass a typical "
            "example"
        )
