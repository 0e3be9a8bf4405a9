"""Modules that are graphs, in which no hook hears a layer: TorchScript and what `torch.export` makes.

"penultimate" is found among their nodes, as in an ONNX file (`heads.last_layers`). An exported program also
knows which module each node comes from, so that its layers can be watched by name; TorchScript does not.
"""

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from copy import deepcopy
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, fx, nn

from assay.errors import InputError
from assay.network.graph_sizes import let_sizes_be_traced
from assay.network.heads import Operation, WeightedLayer, is_layer, last_layers
from assay.network.taps import PENULTIMATE, Row, Taps, first_tensor

Seen = dict[str, Tensor]
"""Values of one run, by what they stand for."""

Observed = Callable[..., tuple[Any, Seen]]
"""Runs a graph: its output, and values from inside it."""

_LINEAR, _CONVOLUTION, _MAPS = "input of the last Linear", "input of the last convolution", "its output"

_graphs: WeakKeyDictionary[nn.Module, dict[tuple[str, ...], Observed]] = WeakKeyDictionary()
"""Graphs that report what they do, by module and layers; the weights in them are the module's own."""

_seen: ContextVar[Seen] = ContextVar("seen")
"""Where the run under way reports."""


def is_graph(module: nn.Module) -> bool:
    """Whether the module runs as a graph of operations, without calling its layers."""
    return isinstance(module, torch.jit.ScriptModule) or (
        isinstance(module, fx.GraphModule)
        and any(isinstance(node.target, torch._ops.OpOverload) for node in module.graph.nodes)
    )


def has_script(module: nn.Module) -> bool:
    """Whether it is TorchScript or has TorchScript inside."""
    return any(isinstance(part, torch.jit.ScriptModule) for part in module.modules())


def as_module(model: Any) -> nn.Module:
    """The module of an exported program; any other module as it is."""
    module = model.module() if type(model).__name__ == "ExportedProgram" else model
    if not isinstance(module, nn.Module):
        raise InputError(
            f"expected a torch.nn.Module, got {type(module).__name__}; for a file use Network.from_onnx"
        )
    return module


def watchable(module: nn.Module) -> list[str]:
    """The layers of a graph that can be watched by name."""
    return list(_node_of_layer(module.graph)) if isinstance(module, fx.GraphModule) else []


class GraphTaps(Taps):
    """Taps on the nodes of a graph."""

    def __init__(self, module: nn.Module, layers: Sequence[str], row: Row) -> None:
        super().__init__(module, row)
        graphs = _graphs.setdefault(module, {})
        if (key := tuple(layers)) not in graphs:
            make = _observed_export if isinstance(module, fx.GraphModule) else _observed_script
            graphs[key] = make(module, layers)
        self._observed = graphs[key]

    def run(self, *arguments: Any, **named: Any) -> Any:
        output, seen = self._observed(*arguments, **named)
        for name, value in seen.items():
            if name == _LINEAR:
                self.last_inputs.add(value, None)
            elif name == _CONVOLUTION:
                self.last_inputs.add(value, seen[_MAPS].shape[1])
            elif name != _MAPS:
                self.add(name, value, channels_first=False)
        return output


def _values_to_see(layers: Sequence[WeightedLayer]) -> dict[str, str]:
    """The names of values in the graph, by what they stand for; a Linear runs before the convolution."""
    wanted: dict[str, str] = {}
    for layer in layers:
        wanted |= {_CONVOLUTION: layer.given, _MAPS: layer.made} if layer.is_convolution else {}
        wanted |= {} if layer.is_convolution else {_LINEAR: layer.given}
    return wanted


def _observed_export(module: Any, layers: Sequence[str]) -> Observed:
    """The exported graph, with calls that report what nodes made."""
    graph: fx.Graph = deepcopy(module.graph)
    nodes = {node.name: node for node in graph.nodes}
    wanted = {name: node for name, node in _node_of_layer(graph).items() if name in layers}
    if PENULTIMATE in layers:
        wanted |= _values_to_see(_exported_layers(graph))

    def report(name: str, value: Any) -> None:
        _seen.get()[name] = first_tensor(value, name)

    for name, node in wanted.items():
        with graph.inserting_after(nodes[node]):
            graph.call_function(report, (name, nodes[node]))
    let_sizes_be_traced(graph)
    tapped = fx.GraphModule(module, graph)

    def observed(*arguments: Any, **named: Any) -> tuple[Any, Seen]:
        token = _seen.set({})
        try:
            return tapped(*arguments, **named), _seen.get()
        finally:
            _seen.reset(token)

    return observed


def _node_of_layer(graph: fx.Graph) -> dict[str, str]:
    """Each module of the program before it was exported, and the last node that it ran: its output."""
    layers: dict[str, str] = {}
    for node in graph.nodes:
        if node.op == "call_function":
            stack = node.meta.get("nn_module_stack") or {}
            layers.update({path: node.name for path, _ in stack.values() if path})
    return layers


def _exported_layers(graph: fx.Graph) -> list[WeightedLayer]:
    operations, moving, outputs = [], [], []
    for node in graph.nodes:
        takes = [part.name for part in node.all_input_nodes]
        if node.op == "placeholder":
            moving.append(node.name)
        elif node.op == "output":
            outputs = takes
        elif isinstance(node.target, torch._ops.OpOverload):
            operations.append(Operation(node.target._schema.name, takes, [node.name]))
        else:
            operations.append(Operation(str(node.target), takes, [node.name]))
    return last_layers(operations, moving, outputs)


def _observed_script(module: Any, layers: Sequence[str]) -> Observed:
    """The graph of `forward` with all calls inlined, which also returns the values to see.

    It reads weights, and whether dropout is on, from the module when it runs.
    """
    graph = module.inlined_graph
    values = {value.debugName(): value for node in graph.nodes() for value in node.outputs()}
    values |= {value.debugName(): value for value in graph.inputs()}
    wanted = _values_to_see(_script_layers(graph)) if PENULTIMATE in layers else {}
    for name in wanted.values():
        graph.registerOutput(values[name])
    if wanted:
        graph.makeMultiOutputIntoTuple()
    whole = next(iter(graph.inputs()))
    reads_weights = bool(whole.uses())  # a frozen module keeps them in the graph
    if not reads_weights:
        graph.eraseInput(0)
    function = torch._C._create_function_from_graph("observed", graph)
    schema = module._c._get_method("forward").schema

    def observed(*arguments: Any, **named: Any) -> tuple[Any, Seen]:
        given = _in_order(schema, arguments, named)
        results = function(module._c, *given) if reads_weights else function(*given)
        if not wanted:
            return results, {}
        return results[0], dict(zip(wanted, results[1:], strict=True))

    return observed


def _in_order(schema: Any, arguments: Sequence[Any], named: dict[str, Any]) -> list[Any]:
    """All arguments of `forward` by position; a graph has no names and no defaults."""
    rest = schema.arguments[1 + len(arguments) :]
    if missing := [part.name for part in rest if part.name not in named and not part.has_default_value()]:
        raise TypeError(f"forward() is missing a value for {missing}")
    if unknown := sorted(named.keys() - {part.name for part in rest}):
        raise TypeError(f"forward() takes no {unknown}")
    return [*arguments, *(named.get(part.name, part.default_value) for part in rest)]


def _script_layers(graph: Any) -> list[WeightedLayer]:
    operations = []
    for node in graph.nodes():
        takes = [value.debugName() for value in node.inputs()]
        inner = [part for block in node.blocks() for part in block.nodes()]
        for part in inner:
            inner.extend(deeper for block in part.blocks() for deeper in block.nodes())
            takes.extend(value.debugName() for value in part.inputs())
        makes = [value.debugName() for value in node.outputs()]
        operations.append(Operation(node.kind(), takes, makes, any(is_layer(part.kind()) for part in inner)))
    moving = [value.debugName() for value in graph.inputs()][1:]
    return last_layers(operations, moving, [value.debugName() for value in graph.outputs()])
