"""Data of any accepted form, as batches of checked tensors."""

from collections.abc import Callable, Iterator, Mapping, Sized
from itertools import repeat
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from assay.errors import InputError
from assay.labels import class_numbers, label_column
from assay.network.inputs import all_finite, batches, each, length, shapes
from assay.trace import Inputs

Encode = Callable[[Any], Inputs]
Batch = tuple[Inputs, Tensor | None]


class Batches:
    """Batches of (inputs, labels or None) from a DataLoader, a Dataset, (inputs, labels) or inputs.

    `whole` is the inputs where they came in one piece, so that they need not be copied. Of rows of several
    labels, column `label` is read.
    """

    def __init__(
        self,
        data: Any,
        encode: Encode,
        batch_size: int,
        allow_nonfinite: bool = False,
        label: int | None = None,
    ) -> None:
        if isinstance(data, Dataset):
            data = DataLoader(data, batch_size=batch_size)
        self.loader = data if isinstance(data, DataLoader) else None
        self.encode = encode
        self.batch_size = batch_size
        self.allow_nonfinite = allow_nonfinite
        self.label = label
        self.whole: Inputs | None = None
        if self.loader is None:
            self.whole, self.labels = _inputs_and_labels(data, encode, label)

    def __len__(self) -> int:
        if self.whole is not None:
            return -(-length(self.whole) // self.batch_size)
        dataset = self.loader.dataset if self.loader is not None else None
        return len(self.loader) if self.loader is not None and isinstance(dataset, Sized) else 0

    def __iter__(self) -> Iterator[Batch]:
        empty = True
        for inputs, labels in self._pieces():
            empty = empty and length(inputs) == 0
            if not self.allow_nonfinite and not all_finite(inputs):
                raise InputError(
                    "expected finite inputs, got NaN or infinity; clean the data, or let a Guard judge it"
                )
            yield inputs, labels
        if empty:
            raise InputError("expected at least one input, got none; pass data that is not empty")

    def _pieces(self) -> Iterator[Batch]:
        if self.loader is not None:
            for item in self.loader:
                yield _inputs_and_labels(item, self.encode, self.label)
        elif self.whole is not None:
            labels = repeat(None) if self.labels is None else torch.split(self.labels, self.batch_size)
            yield from zip(batches(self.whole, self.batch_size), labels, strict=False)


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
        tensor = torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"expected a tensor, an array or a dict of tensors, got {type(value).__name__} ({error}); "
            "for text use Network.from_huggingface"
        ) from error
    if tensor.ndim == 0:
        raise InputError("expected a batch of inputs, got a single number; add a first dimension")
    return tensor


def _inputs_and_labels(item: Any, encode: Encode, label: int | None) -> Batch:
    """(inputs, labels) of a pair, a dict with labels, or inputs alone."""
    if isinstance(item, tuple | list) and not (isinstance(item, list) and _is_text(item)):
        if len(item) == 2:
            return _with_labels(encode(item[0]), item[1], label)
        if len(item) != 1:
            raise InputError(f"expected (inputs, labels) or inputs, got {len(item)} parts; pass one or two")
        item = item[0]
    if isinstance(item, Mapping):
        names = [name for name in ("labels", "label") if name in item]
        inputs = encode({name: value for name, value in item.items() if name not in names})
        return _with_labels(inputs, item[names[0]], label) if names else (inputs, None)
    return encode(item), None


def _is_text(item: list[Any]) -> bool:
    return bool(item) and all(isinstance(element, str) for element in item)


def _with_labels(inputs: Inputs, labels: Any, label: int | None) -> Batch:
    values = class_numbers(labels if label is None else label_column(labels, label)).cpu()
    if len(values) != length(inputs):
        raise InputError(
            f"expected one label per input, got {length(inputs)} inputs and {len(values)} labels; "
            "pass inputs and labels of the same rows"
        )
    return inputs, values
