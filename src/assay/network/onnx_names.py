"""Names of tensors in an ONNX graph: list them, change them, put nodes between an input and its readers."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from assay.network.inputs import Form


def tensor_names(graph: Any) -> set[str]:
    """Every tensor's name."""
    found = {entry.name for part in (graph.input, graph.output, graph.initializer) for entry in part}
    for node in graph.node:
        found.update(node.input, node.output)
        for inner in _subgraphs(node):
            found |= tensor_names(inner)
    return found - {""}


def rename(graph: Any, names: Mapping[str, str]) -> None:
    """Change names of tensors, wherever they occur."""
    for part in (graph.input, graph.output, graph.initializer, graph.value_info):
        for entry in part:
            entry.name = names.get(entry.name, entry.name)
    for node in graph.node:
        for tensors in (node.input, node.output):
            for place, name in enumerate(tensors):
                tensors[place] = names.get(name, name)
        for inner in _subgraphs(node):
            rename(inner, names)


def take_pixels(model: Any, form: Form, scale: float) -> None:
    """Let the model take the pixels in this form as they are and divide them by `scale` itself."""
    from onnx import TensorProto, helper

    inner = {name: f"scaled/{name}" for name, (_, dtype) in form.items() if dtype == torch.uint8}
    rename(model.graph, inner)
    white = helper.make_tensor("scaled/by", TensorProto.FLOAT, (), [scale])
    nodes = []
    for entry in model.graph.input:
        name = entry.name.removeprefix("scaled/")
        if inner.get(name) != entry.name:
            continue
        kind = entry.type.tensor_type
        nodes += [
            helper.make_node("Cast", [name], [f"{inner[name]}/float"], to=TensorProto.FLOAT),
            helper.make_node("Div", [f"{inner[name]}/float", white.name], [f"{inner[name]}/divided"]),
            helper.make_node("Cast", [f"{inner[name]}/divided"], [inner[name]], to=kind.elem_type),
        ]
        entry.name, kind.elem_type = name, TensorProto.UINT8
    if nodes:
        model.graph.initializer.append(white)
        before = list(model.graph.node)
        del model.graph.node[:]
        model.graph.node.extend([*nodes, *before])


def _subgraphs(node: Any) -> Iterator[Any]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs
