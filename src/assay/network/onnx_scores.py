"""The class scores of an ONNX graph: the output that has them, followed back before its softmax."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.errors import InputError
from assay.network.chosen_output import USUAL, Choice

if TYPE_CHECKING:
    from assay.network.onnx_graph import OnnxGraph

_FLOATS = {1: "float32", 10: "float16", 11: "float64", 16: "bfloat16"}
"""Types of tensors that may be class scores, by their number in ONNX."""

_CLASS_AXES = ([1], [-1])
_PASSING = ("Identity", "Cast", "ZipMap")
_SHAPING = ("Identity", "Cast", "Reshape", "Expand", "Unsqueeze", "Squeeze")
"""Operations that repeat or rearrange a number per row and do not change it."""


SOFTMAX, SIGMOID = "softmax", "sigmoid"


@dataclass(frozen=True)
class ClassScores:
    """A tensor of class scores; `behind` is the operation that it was followed through, or empty."""

    tensor: str
    behind: str = ""


def scores_of(graph: "OnnxGraph", asked: Choice, follow: bool) -> ClassScores:
    """The output asked for, else "logits", else the only one that can be class scores.

    With `follow`, the input of the softmax or sigmoid that it comes from, also where a softmax was taken
    apart into Exp, ReduceSum and Div: logits say more than probabilities.
    """
    if isinstance(asked, int):
        return _scores(graph, _output_at(graph, asked), follow)
    if asked is not None:
        return _scores(graph, graph.tensor(asked), follow)
    if USUAL in graph.outputs:
        return _scores(graph, USUAL, follow)
    found = {name: _scores(graph, name, follow) for name in graph.outputs if _may_be_scores(graph, name)}
    if len({scores.tensor for scores in found.values()}) == 1:
        return next(iter(found.values()))
    there = ", ".join(f"{name!r} {_described(graph, name)}" for name in found or graph.outputs)
    if not found:
        raise InputError(
            f"{graph.path}: expected an output with class scores, got {there}; export the network with its "
            "logits or probabilities"
        )
    raise InputError(
        f"{graph.path}: expected one output with class scores, got {there}; choose one with "
        f"output={next(iter(found))!r}"
    )


def _output_at(graph: "OnnxGraph", place: int) -> str:
    if not -len(graph.outputs) <= place < len(graph.outputs):
        raise InputError(f"{graph.path}: expected one of the outputs {graph.outputs}, got number {place}")
    return str(graph.outputs[place])


def _scores(graph: "OnnxGraph", name: str, follow: bool) -> ClassScores:
    tensor = _passed(graph, name, ("ZipMap",))
    if not follow:
        return ClassScores(tensor)
    inner = _passed(graph, tensor, _PASSING)
    node = graph.producer(inner)
    if node is not None and node.op_type == "Sigmoid":
        return ClassScores(str(node.input[0]), SIGMOID)
    behind = _before_softmax(graph, inner)
    return ClassScores(tensor) if behind is None else ClassScores(behind, SOFTMAX)


def _before_softmax(graph: "OnnxGraph", name: str) -> str | None:
    """The input of the softmax, whole or taken apart, or of its logarithm, that made the tensor."""
    node = graph.producer(name)
    if node is None:
        return None
    match node.op_type:
        case "Softmax" | "LogSoftmax":
            return str(node.input[0]) if graph.attribute(node, "axis", -1) in (1, -1) else None
        case "Log":
            return _before_softmax(graph, _passed(graph, node.input[0], _PASSING))
        case "Div":
            return _of_quotient(graph, *node.input)
        case "Mul":
            for one, other in (node.input, reversed(node.input)):
                reciprocal = graph.producer(_passed(graph, other, _SHAPING))
                if reciprocal is not None and reciprocal.op_type == "Reciprocal":
                    return _of_quotient(graph, one, reciprocal.input[0])
        case "Sub":
            return _of_difference(graph, *node.input)
    return None


def _of_quotient(graph: "OnnxGraph", exponential: str, total: str) -> str | None:
    """z of exp(z) / sum(exp(z))."""
    node = graph.producer(exponential)
    if node is None or node.op_type != "Exp" or not _reduces(graph, total, "ReduceSum", exponential):
        return None
    return _without_maximum(graph, node.input[0])


def _of_difference(graph: "OnnxGraph", logits: str, normaliser: str) -> str | None:
    """z of z - log(sum(exp(z)))."""
    if _reduces(graph, normaliser, "ReduceLogSumExp", logits):
        return _without_maximum(graph, logits)
    logarithm = graph.producer(_passed(graph, normaliser, _SHAPING))
    if logarithm is None or logarithm.op_type != "Log":
        return None
    total = graph.producer(_passed(graph, logarithm.input[0], _SHAPING))
    exponential = None if total is None else graph.producer(total.input[0])
    if exponential is None or exponential.op_type != "Exp" or exponential.input[0] != logits:
        return None
    return _of_quotient(graph, exponential.output[0], logarithm.input[0])


def _without_maximum(graph: "OnnxGraph", exponent: str) -> str:
    """z, where the exponent is z less its largest value; otherwise the exponent itself."""
    node = graph.producer(exponent)
    if (
        node is not None
        and node.op_type == "Sub"
        and _reduces(graph, node.input[1], "ReduceMax", node.input[0])
    ):
        return str(node.input[0])
    return exponent


def _reduces(graph: "OnnxGraph", name: str, operation: str, source: str) -> bool:
    """Whether the tensor has one number per row, what the operation makes of the row of `source`."""
    node = graph.producer(_passed(graph, name, _SHAPING))
    while node is not None and node.op_type == "Max":  # with minus infinity, as jax writes it
        live = [part for part in node.input if not graph.is_constant(part)]
        node = graph.producer(_passed(graph, live[0], _SHAPING)) if len(live) == 1 else None
    return (
        node is not None
        and node.op_type == operation
        and node.input[0] == source
        and graph.axes(node) in _CLASS_AXES
    )


def _passed(graph: "OnnxGraph", name: str, operations: tuple[str, ...]) -> str:
    """The tensor that these operations were applied to."""
    while (node := graph.producer(name)) is not None and node.op_type in operations:
        name = str(node.input[0])
    return name


def _may_be_scores(graph: "OnnxGraph", name: str) -> bool:
    if _passed(graph, name, ("ZipMap",)) != name:
        return True
    tensor = graph.output_type(name).tensor_type
    return tensor.elem_type in _FLOATS and (not tensor.HasField("shape") or len(tensor.shape.dim) in (1, 2))


def _described(graph: "OnnxGraph", name: str) -> str:
    """Type and shape of an output, for messages."""
    tensor: Any = graph.output_type(name).tensor_type
    if not tensor.elem_type:
        return "(no tensor)"
    import onnx

    kind = _FLOATS.get(tensor.elem_type) or onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type).name
    sizes = [dimension.dim_param or str(dimension.dim_value) for dimension in tensor.shape.dim]
    return f"{kind} ({', '.join(sizes)})"
