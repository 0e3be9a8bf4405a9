"""A network's forward pass as an ONNX graph with its logits and features by name."""

import io
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx, nn

from assay.errors import InputError
from assay.network.graph_modules import has_script, is_graph
from assay.network.taps import evaluating, modules_of
from assay.trace import Inputs

if TYPE_CHECKING:
    from assay.network.network import Network

OPSET = 17
"""Of the graphs made here; a graph read from a file keeps its own."""

NEWEST = 20
"""The newest opset that the tracing exporter writes."""

Forward = Callable[[Inputs, Sequence[str]], tuple[Tensor, dict[str, Tensor]]]
Read = Callable[[str, Tensor, Inputs], Tensor]


@dataclass(frozen=True)
class NetworkGraph:
    """A model and which of its tensors are inputs, logits and layers.

    `shown` are the logits (under "") and the layers for the example; `read` turns a layer's tensor into one
    row of features per input, and `to_logits` the output into logits, in torch.
    """

    model: Any
    inputs: list[str]
    logits: str
    layers: dict[str, str]
    shown: dict[str, Tensor]
    read: Read
    to_logits: Callable[[Tensor], Tensor]

    @property
    def opset(self) -> int:
        return next(
            int(entry.version) for entry in self.model.opset_import if entry.domain in ("", "ai.onnx")
        )


def traced_network(
    network: "Network", example: Inputs, layers: Sequence[str], forward: Forward | None = None
) -> NetworkGraph:
    """The graph of the module, traced on the example; features are pooled inside the graph."""
    names = [""] if isinstance(example, Tensor) else list(example)
    tensors = [example] if isinstance(example, Tensor) else list(example.values())

    class Observed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = network.module

        def forward(self, *parts: Tensor) -> tuple[Tensor, ...]:
            inputs = parts[0] if names == [""] else dict(zip(names, parts, strict=True))
            logits, features = (forward or network._forward)(inputs, layers)
            return logits, *features.values()

    inputs = [name or "inputs" for name in names]
    outputs = ["logits", *(f"features/{layer}" for layer in layers)]
    with torch.no_grad():
        shown = dict(zip(["", *layers], Observed()(*tensors), strict=True))
    try:
        model = traced(Observed(), tensors, inputs, outputs, inlined=has_script(network.module))
    except (torch.onnx.errors.OnnxExporterError, RuntimeError, TypeError, ValueError) as error:
        raise InputError(
            f"expected a module that torch.onnx can trace, got {type(network.module).__name__} "
            f"({str(error).splitlines()[0]:.200}); export it another way and guard Network.from_onnx(path)"
        ) from error
    layer_names = dict(zip(layers, outputs[1:], strict=True))
    return NetworkGraph(
        model, inputs, "logits", layer_names, shown, lambda _, rows, __: rows, lambda logits: logits
    )


def traced(
    module: nn.Module,
    arguments: Sequence[Tensor],
    inputs: Sequence[str],
    outputs: Sequence[str],
    opset: int = OPSET,
    *,
    inlined: bool = False,
) -> Any:
    """The module as an ONNX model that takes any number of rows.

    `inlined` is for a module with TorchScript inside, which the exporter takes only once it is a trace.
    """
    import onnx

    content = io.BytesIO()
    with _exporting(), evaluating(modules_of(module)):
        torch.onnx.export(
            _as_trace(module, arguments) if inlined else module,
            tuple(arguments),
            content,  # type: ignore[arg-type]
            dynamo=False,  # the other exporter takes seconds per graph and needs another package
            training=_mode(module),
            opset_version=opset,
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_axes={name: {0: "rows"} for name in (*inputs, *outputs)},
        )
    return onnx.load_from_string(content.getvalue())


def _as_trace(module: nn.Module, arguments: Sequence[Tensor]) -> Any:
    trace: Any = torch.jit.trace
    return trace(module, tuple(arguments), check_trace=False)


def _mode(module: nn.Module) -> torch.onnx.TrainingMode:
    """Programs of `torch.export` refuse to be told a mode; everything is in evaluation mode already."""
    exported = any(isinstance(part, fx.GraphModule) and is_graph(part) for part in module.modules())
    return torch.onnx.TrainingMode.PRESERVE if exported else torch.onnx.TrainingMode.EVAL


@contextmanager
def _exporting() -> Iterator[None]:
    """Without fused attention, which ONNX lacks, and without the tracer's warnings about Python code."""
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)


def under_tracer() -> bool:
    """Whether operations are being traced into a graph, to be run on other rows."""
    return bool(torch._C._is_tracing())
