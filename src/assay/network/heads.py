"""Which layer makes the logits: what goes into it is "penultimate".

It is the last Linear to run, or a convolution with one channel per class that runs after it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

_SINGLE_LOGIT = 1

_LINEAR = {
    **dict.fromkeys(("Gemm", "MatMul", "MatMulInteger", "MatMulNBits", "DynamicQuantizeMatMul"), (0, 1)),
    **dict.fromkeys(("MatMulIntegerToFloat", "FusedMatMul", "FusedGemm"), (0, 1)),
    **dict.fromkeys(("QLinearMatMul", "QGemm"), (0, 3)),
    **dict.fromkeys(("aten::linear", "aten::matmul", "aten::mm", "quantized::linear"), (0, 1)),
    **dict.fromkeys(("quantized::linear_dynamic", "quantized::linear_dynamic_fp16"), (0, 1)),
    "aten::addmm": (1, 2),
}
"""Operations of a Linear in ONNX, onnxruntime and ATen; which arguments are its input and its weights."""

_CONVOLUTION = {
    **dict.fromkeys(("Conv", "ConvInteger", "FusedConv"), (0, 1)),
    "QLinearConv": (0, 3),
    **dict.fromkeys(("aten::conv1d", "aten::conv2d", "aten::conv3d"), (0, 1)),
    **dict.fromkeys(("aten::convolution", "aten::_convolution"), (0, 1)),
}

_QUANTISING = ("QuantizeLinear", "DynamicQuantizeLinear")


def has_width(channels: int, classes: int) -> bool:
    """Whether so many outputs can be the logits of so many classes: two may come from a single logit."""
    return channels == classes or (channels == _SINGLE_LOGIT and classes == 2)


def may_make_logits(part: nn.Module, classes: int | None) -> bool:
    """Whether the logits may come from this layer: a Linear, or a convolution with a channel per class.

    Any convolution if the number of classes is not known yet. A quantised Linear is no `nn.Linear`, but has
    its sizes, and so have layers of other authors that do the same.
    """
    if isinstance(part, _ConvNd):
        return classes is None or has_width(part.out_channels, classes)
    own = part.__dict__  # far faster than getattr
    return isinstance(part, nn.Linear) or ("in_features" in own and "out_features" in own)


@dataclass
class HeadInputs:
    """What layers that may make the logits were given in one forward pass.

    Only the last of all Linear layers is held, and the last convolution of each number of channels, so that
    the first pass, before the number of classes is known, holds few tensors.
    """

    _found: dict[int | None, Tensor] = field(default_factory=dict)

    def add(self, given: Tensor, channels: int | None) -> None:
        """`channels` are those a convolution makes; None for a Linear."""
        self._found.pop(channels, None)  # so that what ran last comes last
        self._found[channels] = given

    def of_logits(self, classes: int) -> tuple[Tensor, bool] | None:
        """What the last layer that can make so many classes was given, and whether it is a convolution."""
        able = [
            (given, channels is not None)
            for channels, given in self._found.items()
            if channels is None or has_width(channels, classes)
        ]
        return able[-1] if able else None


@dataclass(frozen=True)
class Operation:
    """A node of a graph, by the names of what it takes and makes."""

    kind: str
    takes: Sequence[str]
    makes: Sequence[str]
    hides_layers: bool = False
    """Whether layers run inside it, which cannot be read: a branch or a loop."""


@dataclass(frozen=True)
class WeightedLayer:
    """A layer with weights: what it is given and what it makes, and the weights."""

    given: str
    made: str
    weights: str
    is_convolution: bool


def is_layer(kind: str) -> bool:
    """Whether operations of this kind are layers, if one of their arguments is weights."""
    return kind in _LINEAR or kind in _CONVOLUTION


def last_layers(
    operations: Sequence[Operation], moving: Iterable[str], outputs: Iterable[str]
) -> list[WeightedLayer]:
    """The last Linear that the outputs need, and after it the last convolution, if one runs after it.

    `moving` are the inputs of the graph; what does not depend on them is weights. A product of two
    activations, as in attention, is no layer.
    """
    changing = set(moving)
    for operation in operations:
        if any(name in changing for name in operation.takes):
            changing.update(operation.makes)
    producers = {name: operation for operation in operations for name in operation.makes}
    linear: WeightedLayer | None = None
    convolution: WeightedLayer | None = None
    for operation in _needed(operations, outputs):
        if operation.hides_layers:
            linear = convolution = None
        elif (found := _layer(operation, changing, producers)) is not None and found.is_convolution:
            convolution = found
        elif found is not None:
            linear, convolution = found, None
    return [layer for layer in (linear, convolution) if layer is not None]


def _layer(operation: Operation, changing: set[str], producers: dict[str, Operation]) -> WeightedLayer | None:
    places = _LINEAR.get(operation.kind) or _CONVOLUTION.get(operation.kind)
    if places is None:
        return None
    given, weights = (operation.takes[place] for place in places)
    if given not in changing:
        given, weights = weights, given
    if given not in changing or weights in changing:
        return None
    before = producers.get(given)
    if before is not None and before.kind in _QUANTISING:  # the numbers, not the integers they become
        given = before.takes[0]
    return WeightedLayer(given, operation.makes[0], weights, operation.kind in _CONVOLUTION)


def _needed(operations: Sequence[Operation], outputs: Iterable[str]) -> list[Operation]:
    """Those that the outputs depend on, in order."""
    wanted, found = set(outputs), []
    for operation in reversed(operations):
        if not wanted.isdisjoint(operation.makes):
            wanted.update(operation.takes)
            found.append(operation)
    return found[::-1]
