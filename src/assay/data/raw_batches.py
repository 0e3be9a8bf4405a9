"""Any dataset, loader or iterable as batches of inputs and labels, one at a time."""

from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from assay.data.dataset_items import (
    Columns,
    Transform,
    batched,
    batched_labels,
    input_and_label,
    is_one,
    is_texts,
    usual_columns,
)
from assay.errors import InputError


def comes_in_batches(data: Any) -> bool:
    """Whether data is read batch by batch: a loader, a dataset, an iterator, or a list of either's elements.

    Everything else (arrays, texts, dicts of arrays, a pair) is inputs in one piece.
    """
    if isinstance(data, DataLoader | Dataset) or hasattr(data, "column_names"):
        return True
    if isinstance(data, Mapping):
        if any(hasattr(part, "column_names") for part in data.values()):
            raise InputError(
                f'expected one split of a dataset, got {sorted(data)}; pass a split such as data["test"]'
            )
        return False
    if isinstance(data, list):
        return bool(data) and not is_texts(data) and not _is_numeric(data[0]) and not is_pair(data)
    return isinstance(data, Iterable) and not isinstance(data, tuple | str) and not hasattr(data, "__array__")


def is_pair(data: Any) -> bool:
    """Whether data is (inputs, labels): a tuple of two, or a list of two if the second looks like labels."""
    if isinstance(data, tuple) or not isinstance(data, list) or len(data) != 2 or is_texts(data):
        return isinstance(data, tuple) and len(data) == 2
    inputs, labels = data
    shape = np.shape(labels) if _is_array(labels) or isinstance(labels, list) else ()
    is_column = len(shape) in (1, 2) and shape[1:] in ((), (1,))
    return is_column and isinstance(inputs, Sized) and len(inputs) == shape[0]


def is_images(inputs: Any) -> bool:
    """Whether inputs are a list of PIL images."""
    return isinstance(inputs, list) and bool(inputs) and isinstance(inputs[0], Image.Image)


def raw_batches(
    data: Any,
    batch_size: int,
    *,
    transform: Transform | None = None,
    columns: Columns | None = None,
    several: bool = False,
) -> Iterator[tuple[Any, Any]]:
    """(inputs, labels or None) batch by batch; only one batch is in memory.

    A DataLoader hands out batches, and so does any iterable whose labels are several; datasets hand out
    items, and so does any iterable of images, of texts or with a single label each: those are put together.
    `several` says that one input has several labels. `transform` is called on the input of every item.
    """
    if columns is None and getattr(data, "column_names", None):
        columns = usual_columns(data.column_names)
    if isinstance(data, DataLoader):
        elements: Iterable[Any] = data
    elif _has_slices(data):
        elements = (data[start : start + batch_size] for start in range(0, len(data), batch_size))
    else:
        yield from _put_together(data, batch_size, transform, columns, several)
        return
    for element in elements:
        inputs, labels = input_and_label(element, columns)
        yield batched(inputs, transform), _labels(labels)


def batch_count(data: Any, batch_size: int) -> int:
    """How many batches there will be; 0 if that is not known."""
    if isinstance(data, DataLoader):
        return len(data) if isinstance(data.dataset, Sized) else 0
    if isinstance(data, Dataset) or hasattr(data, "column_names"):
        return -(-len(data) // batch_size) if isinstance(data, Sized) else 0
    return len(data) if isinstance(data, Sized) else 0


def _put_together(
    data: Any, batch_size: int, transform: Transform | None, columns: Columns | None, several: bool
) -> Iterator[tuple[Any, Any]]:
    from_dataset = isinstance(data, Dataset) or hasattr(data, "column_names")
    in_batches = False  # once there was a batch, the last of one row is a batch, too
    held: list[tuple[Any, Any]] = []
    for element in _elements(data):
        value, label = input_and_label(element, columns)
        one = is_one(value, label)
        in_batches = in_batches or not from_dataset or not (one or _is_item(value, label, several))
        if one or not in_batches:
            held.append((value, label))
            if len(held) == batch_size:
                yield _joined(held, transform)
                held = []
        else:
            yield batched(value, transform), _labels(label)
    if held:
        yield _joined(held, transform)


def _has_slices(data: Any) -> bool:
    """Whether this is a Dataset of Hugging Face, of which a slice is a dict of columns."""
    return hasattr(data, "column_names") and isinstance(data, Sized) and not isinstance(data, Dataset)


def _elements(data: Any) -> Iterable[Any]:
    if isinstance(data, Dataset) and not isinstance(data, IterableDataset):
        return (data[place] for place in range(len(data)))  # type: ignore[arg-type]
    elements: Iterable[Any] = data
    return elements


def _is_item(value: Any, label: Any, several: bool) -> bool:
    """Whether a dataset's element is an item, and not a batch: with as many labels, more than one, as rows.

    Where one input has `several` labels, their number says nothing: then only images and texts can tell.
    """
    if several or is_images(value) or is_texts(value):
        return not (is_images(value) or is_texts(value))
    count = len(label) if isinstance(label, Sized) and not isinstance(label, str) else 1
    rows = next(iter(value.values())) if isinstance(value, Mapping) and value else value
    return count <= 1 or not isinstance(rows, Sized) or len(rows) != count


def _joined(items: list[tuple[Any, Any]], transform: Transform | None) -> tuple[Any, Any]:
    inputs, labels = zip(*items, strict=True)
    known = None if all(label is None for label in labels) else batched_labels(labels)
    return batched(list(inputs), transform), known


def _labels(labels: Any) -> Any:
    """The labels of a batch; a list of arrays or images of labels as one array, where they fit."""
    if isinstance(labels, list) and labels and isinstance(labels[0], Tensor | np.ndarray | Image.Image):
        return batched_labels(labels)
    return labels


def _is_array(value: Any) -> bool:
    return isinstance(value, Tensor | np.ndarray)


def _is_numeric(value: Any) -> bool:
    """Whether a list that starts with this is one array: of numbers, of lists of numbers, or of rows."""
    while isinstance(value, list) and value:
        value = value[0]
    return isinstance(value, int | float | np.generic | np.ndarray) or (
        isinstance(value, Tensor) and value.ndim == 0
    )
