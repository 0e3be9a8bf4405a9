"""The graph in an ONNX file: its tensors by name, with inner tensors exposed as outputs."""

from collections.abc import Iterable
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

from assay.errors import InputError, shortened
from assay.extras import expect_installed
from assay.identity import digest, file_hash
from assay.network.heads import Operation, WeightedLayer, has_width, last_layers
from assay.network.taps import PENULTIMATE


class OnnxGraph:
    """The graph as `onnx` describes it; weights in separate files are not loaded."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        self.model = _load_model(self.path)
        self.nodes = list(self.model.graph.node)  # in the order in which they run
        self.outputs = [output.name for output in self.model.graph.output]
        self.producers = {name: place for place, node in enumerate(self.nodes) for name in node.output}
        self.named = {node.name: node.output[0] for node in self.nodes if node.name and node.output}
        if not self.outputs:
            raise InputError(
                f"{self.path}: expected a graph with outputs, got none; export the network again"
            )

    def producer(self, name: str) -> Any:
        """The node that makes a tensor; None for inputs and weights."""
        place = self.producers.get(name)
        return None if place is None else self.nodes[place]

    def is_constant(self, name: str) -> bool:
        """Whether a tensor is a weight, or computed from weights alone."""
        return name in self._constants

    def attribute(self, node: Any, name: str, default: Any) -> Any:
        """The value of a node's attribute."""
        import onnx

        found = [entry for entry in node.attribute if entry.name == name]
        return onnx.helper.get_attribute_value(found[0]) if found else default

    def axes(self, node: Any) -> list[int] | None:
        """The axes that a reduction runs over: an attribute in older graphs, a constant input in newer."""
        import onnx

        given = self.attribute(node, "axes", None)
        if given is None and len(node.input) > 1:
            values = [tensor for tensor in self.model.graph.initializer if tensor.name == node.input[1]]
            made = self.producer(node.input[1])
            values += [self.attribute(made, "value", None)] if made is not None else []
            given = onnx.numpy_helper.to_array(values[0]).tolist() if values and values[0] else None
        return None if given is None else [int(axis) for axis in given]

    def output_type(self, name: str) -> Any:
        """The declared type of an output."""
        return next(output.type for output in self.model.graph.output if output.name == name)

    def tensor(self, layer: str) -> str:
        """The tensor with this name: an output, an inner tensor, or the first output of a node."""
        name = layer if layer in self.outputs or layer in self.producers else self.named.get(layer)
        if name is None:
            raise InputError(
                f"{self.path}: expected a layer of the graph, got {layer!r}; choose "
                f"{PENULTIMATE!r}, or a tensor from {shortened([*self.outputs, *self.producers])}"
            )
        return name

    def penultimate(self, logits: str) -> str:
        """What goes into the layer that makes the logits: the last Gemm or MatMul with weights that they
        need, quantised or not, or a Conv after it with one channel per class."""
        operations = [Operation(node.op_type, node.input, node.output) for node in self.nodes]
        weights = {tensor.name for tensor in self.model.graph.initializer}
        moving = [entry.name for entry in self.model.graph.input if entry.name not in weights]
        for layer in reversed(last_layers(operations, moving, [logits])):
            if not layer.is_convolution or self._makes(layer, logits):
                return layer.given
        raise InputError(
            f"{self.path}: expected a Gemm or MatMul with weights before {logits!r}, or a Conv with one "
            f"channel per class, found none; choose layers from "
            f"{shortened([*self.outputs, *self.producers])}, or watch none with layers=()"
        )

    @cached_property
    def _constants(self) -> set[str]:
        """Weights, and tensors computed from weights alone (a transposed or dequantised weight)."""
        constants = {tensor.name for tensor in self.model.graph.initializer} | {""}
        for node in self.nodes:
            if all(name in constants for name in node.input):
                constants.update(node.output)
        return constants

    def exposing(self, names: Iterable[str]) -> bytes:
        """The file's graph with these tensors as outputs."""
        import onnx

        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        for name in names:
            if name not in (output.name for output in model.graph.output):
                model.graph.output.append(onnx.ValueInfoProto(name=name))
        content: bytes = model.SerializeToString()
        return content

    def whole(self) -> Any:
        """The model with all its weights, including those in separate files."""
        import onnx

        self._weight_files  # noqa: B018  # raises if one is missing
        return onnx.load(str(self.path))

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the graph and of the files with its weights."""
        return digest(self.model.SerializeToString(deterministic=True), *map(file_hash, self._weight_files))

    @property
    def _weight_files(self) -> list[Path]:
        places = {
            entry.value
            for tensor in self.model.graph.initializer
            for entry in tensor.external_data
            if entry.key == "location"
        }
        files = [self.path.parent / place for place in sorted(places)]
        for file in files:
            if not file.resolve().is_relative_to(self.path.parent.resolve()) or not file.is_file():
                raise InputError(
                    f"{self.path}: expected its weights beside it in {file.name}, found no such file; "
                    "move the files together"
                )
        return files

    def _makes(self, layer: WeightedLayer, logits: str) -> bool:
        """Whether a convolution has one channel per class, as far as the file tells how many there are."""
        channels = next(
            (tensor.dims[0] for tensor in self.model.graph.initializer if tensor.name == layer.weights), None
        )
        shapes = {entry.name: entry.type.tensor_type.shape.dim for entry in self.model.graph.output}
        sizes = [dim.dim_value for dim in shapes.get(logits, ())][1:2]
        return channels is None or not any(sizes) or has_width(channels, sizes[0])


def _load_model(path: Path) -> Any:
    expect_installed("onnx", "onnxruntime")  # a graph that is read is also run
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    if not path.is_file():
        raise InputError(f"{path}: expected an ONNX file, found none; check the path")
    try:
        return onnx.load(str(path), load_external_data=False)
    except (DecodeError, OSError, ValueError) as error:
        raise InputError(
            f"{path}: cannot be read as ONNX ({error}); the file is damaged, export the network again"
        ) from error
