"""Several predictions per input: how a dense output (a map, boxes) and its layers become rows of a Trace."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from assay.errors import InputError
from assay.labels import class_numbers
from assay.network.feature_pooling import name_of
from assay.outputs import LOGITS
from assay.trace import Trace

PIXELS = "pixels"

Resampling: TypeAlias = Literal["nearest", "linear"]
RowFunction: TypeAlias = Callable[[Any, dict[str, Tensor]], Any]
"""From a module's output and the outputs of the watched layers to (logits, source) or (logits, source,
features)."""
LabelFunction: TypeAlias = Callable[[Any, Trace], Any]
"""From the labels of a batch as they were loaded, and its Trace, to one class number per row."""

_LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}


class PredictionRows(ABC):
    """What `Network(module, rows=...)` takes."""

    of_scores: bool
    """Whether rows are made of the class scores alone, and not of everything that the module returns."""

    @abstractmethod
    def trace(self, output: Any, layers: Mapping[str, Tensor], count: int) -> Trace:
        """A row per prediction, with their sources, from what a module and its layers put out for `count`
        inputs; class scores stand for logits as they come."""

    @abstractmethod
    def labels(self, known: Any, trace: Trace) -> Tensor:
        """One class number per row of the Trace of a batch, from the labels of the batch."""

    @abstractmethod
    def stated(self) -> dict[str, Any]:
        """What the rows depend on, as plain values, for the fingerprint of a network."""


class PixelRows(PredictionRows):
    """A row per pixel, from logits (N, classes, H, W); signals (N, classes, L) and volumes work the same.

    Features (N, d, h, w) are resampled to the pixels: "nearest" takes the cell that a pixel lies in, "linear"
    interpolates, as a network does that enlarges its logits at the end; features (N, d) are those of all
    pixels of their input. `stride` takes every so-manieth pixel of each axis, from the middle of the first
    step on: neighbours hardly differ, and rows are many.

    Labels are maps (N, H, W) of class numbers in the size of the logits.
    """

    of_scores = True

    def __init__(self, stride: int = 1, *, resampling: Resampling = "nearest") -> None:
        if stride < 1:
            raise InputError(f"expected a stride of at least 1, got {stride}; 1 takes every pixel")
        if resampling not in get_args(Resampling):
            raise InputError(
                f"expected resampling to be one of {list(get_args(Resampling))}, got {resampling!r}"
            )
        self.stride = stride
        self.resampling = resampling

    def trace(self, output: Any, layers: Mapping[str, Tensor], count: int) -> Trace:
        if not isinstance(output, Tensor) or output.ndim < 3 or len(output) != count:
            found = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
            raise InputError(
                f"expected class scores of shape ({count}, classes, height, width), got {found}; choose "
                "another output with output=, or pass rows=, a function that makes rows of it"
            )
        space = output.shape[2:]
        logits = self._rows(output, space)
        source = torch.arange(count).repeat_interleave(len(logits) // max(1, count))
        features = {name: self._features(name, value, space, source) for name, value in layers.items()}
        return Trace(logits, features, source=source, input_count=count, outputs=LOGITS)

    def labels(self, known: Any, trace: Trace) -> Tensor:
        maps = torch.as_tensor(known)
        each = len(trace) // max(1, len(maps))
        picked = self._picked(maps, maps.shape[1:]) if maps.ndim > 1 else maps
        if maps.ndim < 2 or picked[0].numel() != each:
            raise InputError(
                f"expected a map of labels per input, in the size of the logits ({each} pixels at stride "
                f"{self.stride}), got shape {tuple(maps.shape)}; resize the maps with nearest neighbours"
            )
        return class_numbers(picked.flatten())

    def stated(self) -> dict[str, Any]:
        return {"rows": PIXELS, "stride": self.stride, "resampling": self.resampling}

    def __repr__(self) -> str:
        return f"PixelRows(stride={self.stride}, resampling={self.resampling!r})"

    def _picked(self, maps: Tensor, space: torch.Size) -> Tensor:
        """The chosen pixels of maps (..., *space)."""
        for axis, size in enumerate(space, maps.ndim - len(space)):
            if self.stride > 1:
                maps = maps.index_select(axis, self._places(size).to(maps.device))
        return maps

    def _places(self, size: int) -> Tensor:
        return torch.arange(min(self.stride // 2, size - 1), size, self.stride)

    def _rows(self, maps: Tensor, space: torch.Size) -> Tensor:
        """(pixels, channels) of the chosen pixels of maps (N, channels, *space)."""
        return self._picked(maps, space).movedim(1, -1).flatten(0, -2).float()

    def _features(self, name: str, value: Tensor, space: torch.Size, source: Tensor) -> Tensor:
        if value.ndim == 2:
            return value.float()[source.to(value.device)]
        if value.ndim != 2 + len(space):
            raise InputError(
                f"expected layer {name!r} to put out (N, d) or (N, d, {', '.join('HWD'[: len(space)])}), got "
                f"{tuple(value.shape)}; pass pool=, a function from the layer's output to that"
            )
        if value.shape[2:] == space:
            return self._rows(value, space)
        if self.resampling == "linear":
            enlarged = interpolate(value, size=space, mode=_LINEAR[len(space)], align_corners=False)
            return self._rows(enlarged, space)
        for axis, size in enumerate(space, 2):
            cells = (2 * self._places(size) + 1) * value.shape[axis] // (2 * size)
            value = value.index_select(axis, cells.to(value.device))
        return value.movedim(1, -1).flatten(0, -2).float()


class FunctionRows(PredictionRows):
    """Rows made by a function of the module's output, for detectors and any other form.

    `function(output, layers)` gets what the module returned and the outputs of the watched layers by name,
    and returns (logits (R, classes), source (R,)), with a third part where layers are watched: a dict of
    features (R, d) by layer. More entries (the boxes, say) stay in the Trace's features. `labels(known,
    trace)` gives a class number per row, from the labels of the batch as they were loaded; without it, labels
    are one number per row.
    """

    of_scores = False

    def __init__(self, function: RowFunction, labels: LabelFunction | None = None) -> None:
        if not callable(function) or not (labels is None or callable(labels)):
            raise InputError(
                f"expected functions for rows and their labels, got {type(function).__name__} and "
                f"{type(labels).__name__}; pass rows='pixels' for maps of logits"
            )
        self.function = function
        self.label_function = labels

    def trace(self, output: Any, layers: Mapping[str, Tensor], count: int) -> Trace:
        logits, source, features = self._answer(self.function(output, dict(layers)))
        if missing := sorted(set(layers) - set(features)):
            raise InputError(
                f"expected rows of features of the watched layers {missing}, got {sorted(features)}; return "
                "(logits, source, features) with one entry per layer, or watch none: layers=()"
            )
        source = source.cpu().long()
        order = None if bool((source[1:] >= source[:-1]).all()) else source.argsort(stable=True)
        trace = Trace(
            logits.float(),
            {str(name): value.float() for name, value in features.items()},
            source=source,
            input_count=count,
            outputs=LOGITS,
        )
        return trace if order is None else trace[order]

    def labels(self, known: Any, trace: Trace) -> Tensor:
        found = known if self.label_function is None else self.label_function(known, trace)
        numbers = class_numbers(found)
        if len(numbers) != len(trace):
            raise InputError(
                f"expected one label per row ({len(trace)}), got {len(numbers)}; pass "
                "rows=assay.FunctionRows(function, labels=...), a function that finds them"
            )
        return numbers

    def stated(self) -> dict[str, Any]:
        return {"rows": name_of(self.function)}

    def __repr__(self) -> str:
        return f"FunctionRows({name_of(self.function)})"

    def _answer(self, found: Any) -> tuple[Tensor, Tensor, Mapping[str, Tensor]]:
        parts = tuple(map(_as_tensors, found if isinstance(found, tuple | list) else (found,)))
        logits, source = parts[0], parts[1] if len(parts) > 1 else None
        features = parts[2] if len(parts) > 2 else {}
        if not (
            len(parts) in (2, 3)
            and isinstance(logits, Tensor)
            and isinstance(source, Tensor)
            and isinstance(features, Mapping)
            and logits.ndim == 2
            and logits.shape[1] >= 1
            and source.shape == logits.shape[:1]
        ):
            raise InputError(
                f"expected {name_of(self.function)} to return logits (R, classes), the source (R,) of each "
                f"row and, if layers are watched, a dict of features, got {_described(parts)}"
            )
        return logits, source, features


def prediction_rows(asked: Any) -> PredictionRows | None:
    """The rule for `Network(rows=...)`: None, "pixels", a function, or a rule."""
    if asked is None or isinstance(asked, PredictionRows):
        return asked
    if asked == PIXELS:
        return PixelRows()
    if callable(asked):
        return FunctionRows(asked)
    raise InputError(
        f"expected rows to be {PIXELS!r}, a function, PixelRows or FunctionRows, got {asked!r}; leave it out "
        "for a row per input"
    )


def _as_tensors(part: Any) -> Any:
    """Arrays as tensors, also those in a dict; anything else as it is."""
    if isinstance(part, Mapping):
        return {name: _as_tensors(value) for name, value in part.items()}
    return torch.as_tensor(part) if isinstance(part, np.ndarray) else part


def _described(parts: tuple[Any, ...]) -> str:
    return ", ".join(
        str(tuple(part.shape)) if isinstance(part, Tensor) else type(part).__name__ for part in parts
    )
