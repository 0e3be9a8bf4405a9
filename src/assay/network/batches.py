"""Data of any accepted form, as batches of checked tensors."""

from collections.abc import Callable, Iterator, Mapping
from itertools import repeat
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.data.dataset_items import Columns, Transform, batched, input_and_label
from assay.data.raw_batches import batch_count, comes_in_batches, is_images, is_pair, raw_batches
from assay.errors import InputError
from assay.labels import IGNORED, class_numbers, label_column
from assay.network.inputs import all_finite, batches, each, length, rows, shapes
from assay.trace import Inputs

Encode = Callable[[Any], Inputs]
Batch = tuple[Inputs, Any]


class Batches:
    """Batches of (inputs, labels or None) from a loader, a dataset, an iterable, (inputs, labels) or inputs.

    `whole` is the inputs where they came in one piece, so that they need not be copied. Rows whose label is
    `ignore_index` are left out, and `ignored` counts them. Of rows of several labels, column `label` is
    read. Where outputs are `dense`, labels are passed on as they come: only the network knows which row has
    which.
    """

    def __init__(
        self,
        data: Any,
        encode: Encode,
        batch_size: int,
        allow_nonfinite: bool = False,
        *,
        label: int | None = None,
        dense: bool = False,
        ignore_index: int = IGNORED,
        transform: Transform | None = None,
        columns: Columns | None = None,
    ) -> None:
        self.encode = encode
        self.batch_size = batch_size
        self.allow_nonfinite = allow_nonfinite
        self.label = label
        self.dense = dense
        self.ignore_index = ignore_index
        self.ignored = 0
        self.whole: Inputs | None = None
        self.labels: Any = None
        self._load: Callable[[], Iterator[tuple[Any, Any]]] | None = None
        self._count = 0
        if comes_in_batches(data):
            self._count = batch_count(data, batch_size)
            several = dense or label is not None
            self._load = lambda: raw_batches(
                data, batch_size, transform=transform, columns=columns, several=several
            )
            return
        inputs, labels = _in_one_piece(data, columns)
        if transform is not None or is_images(inputs):
            self._count = -(-len(inputs) // batch_size)
            self._load = lambda: _transformed(inputs, labels, batch_size, transform)
        else:
            self.whole, self.labels = self._checked(inputs, labels)

    def __len__(self) -> int:
        return self._count if self.whole is None else -(-length(self.whole) // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        empty = True
        for inputs, labels in self._pieces():
            if not length(inputs):
                continue
            empty = False
            if not self.allow_nonfinite and not all_finite(inputs):
                raise InputError(
                    "expected finite inputs, got NaN or infinity; clean the data, or let a Guard judge it"
                )
            yield inputs, labels
        if empty:
            if self.ignored:
                raise InputError(
                    f"expected a label that counts, got {self.ignored} times {self.ignore_index}, "
                    "which is ignored; pass inputs with labels, or without any"
                )
            raise InputError("expected at least one input, got none; pass data that is not empty")

    def _pieces(self) -> Iterator[Batch]:
        if self._load is not None:
            for inputs, labels in self._load():
                yield self._checked(inputs, labels)
        elif self.whole is not None:
            labels = repeat(None) if self.labels is None else _split(self.labels, self.batch_size)
            yield from zip(batches(self.whole, self.batch_size), labels, strict=False)

    def _checked(self, inputs: Any, labels: Any) -> Batch:
        """Encoded inputs and their labels, without those to be ignored."""
        tensors = self.encode(inputs)
        if labels is None:
            return tensors, None
        known = labels if self.dense else self._numbers(labels)
        if len(known) != length(tensors):
            raise InputError(
                f"expected one label per input, got {length(tensors)} inputs and {len(known)} labels; "
                "pass inputs and labels of the same rows"
            )
        if self.dense or not (without := known == self.ignore_index).any():
            return tensors, known
        self.ignored += int(without.sum())
        return rows(tensors, ~without), known[~without]

    def _numbers(self, labels: Any) -> Tensor:
        return class_numbers(labels if self.label is None else label_column(labels, self.label)).cpu()


def _in_one_piece(data: Any, columns: Columns | None) -> tuple[Any, Any]:
    """The inputs and labels (or None) of data that did not come in batches."""
    if isinstance(data, tuple) or is_pair(data):
        if len(data) not in (1, 2):
            raise InputError(f"expected (inputs, labels) or inputs, got {len(data)} parts; pass one or two")
        return data[0], data[1] if len(data) == 2 else None
    return input_and_label(data, columns) if isinstance(data, Mapping) else (data, None)


def _transformed(
    inputs: Any, labels: Any, size: int, transform: Transform | None
) -> Iterator[tuple[Any, Any]]:
    for start in range(0, len(inputs), size):
        part = slice(start, start + size)
        yield batched(inputs[part], transform), None if labels is None else labels[part]


def _split(labels: Any, size: int) -> Iterator[Any]:
    return (labels[start : start + size] for start in range(0, len(labels), size))


def encoded(data: Any) -> Inputs:
    """The data as tensors, without a copy where possible; an error if they are not numbers."""
    if isinstance(data, Mapping):
        if not data:
            raise InputError("expected a dict of tensors, got an empty one; pass at least one input")
        tensors = {str(name): _as_tensor(value) for name, value in data.items()}
        if len({len(tensor) for tensor in tensors.values()}) > 1:
            raise InputError(f"expected the same number of rows in every tensor, got {shapes(tensors)}")
        return tensors
    return _as_tensor(data)


def placed(inputs: Inputs, device: torch.device, dtype: torch.dtype) -> Inputs:
    """The inputs on this device; floating-point ones in this precision, integers unchanged."""
    return each(
        inputs, lambda tensor: tensor.to(device, dtype if tensor.is_floating_point() else tensor.dtype)
    )


def _as_tensor(value: Any) -> Tensor:
    try:
        in_rows = isinstance(value, list) and bool(value) and isinstance(value[0], np.ndarray)
        tensor = torch.as_tensor(np.asarray(value) if in_rows else value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"expected a tensor, an array or a dict of tensors, got {type(value).__name__} ({error}); "
            "for text use Network.from_huggingface"
        ) from error
    if tensor.ndim == 0:
        raise InputError("expected a batch of inputs, got a single number; add a first dimension")
    return tensor
