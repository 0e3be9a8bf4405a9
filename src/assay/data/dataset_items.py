"""What a dataset or a loader hands out: the input and the label in an item or a batch, and items as a batch.

Elements are (input, label), (input, label, id, ...), dicts with a label under a usual name, or inputs alone.
Ids and other metadata are ignored.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from assay.data.delimited import LABEL_NAMES
from assay.data.images import image_pixels
from assay.data.text import TEXT_NAMES
from assay.errors import InputError

Columns: TypeAlias = tuple[str, str | None]
"""The names of the inputs and, if there are any, of the labels in an element that is a dict."""

Transform: TypeAlias = Callable[[Any], Any]
"""From the input of one item (a PIL image, an array) to what the network takes."""

IMAGE_NAMES = ("image", "img", "jpg", "jpeg", "png", "webp")
ARRAYS_OF_RAY = ("data", "item")
"""What Ray calls the only column of a dataset made of arrays."""
METADATA = ("id", "idx", "index", "key", "path", "file", "filename", "json")
INPUT_NAMES = (*TEXT_NAMES, *IMAGE_NAMES, "inputs", "x", "features")
_LABELS = ("labels", "label")
_MORE_LABELS = (*LABEL_NAMES, "targets", "cls")


def input_and_label(element: Any, columns: Columns | None = None) -> tuple[Any, Any]:
    """The input and the label (None if there is none) of an item or a batch.

    In a dict, a column with the usual name of an image or a text is the input, and all other columns are
    ignored. Without one, every column of numbers is an input of the network, by its name, except ids, and
    except the only column of a dataset of Ray.

    >>> input_and_label({"image": 1.5, "label": 3, "id": "a7"}), input_and_label((1.5, 3, "a7"))
    ((1.5, 3), (1.5, 3))
    """
    if isinstance(element, Mapping):
        return _of_columns(element, columns)
    if columns is not None:
        raise InputError(
            f"expected dicts with the columns {list(columns)}, got {type(element).__name__}; "
            "leave columns= out, or pass a dataset with named columns"
        )
    if isinstance(element, tuple | list) and not is_texts(element):
        if not len(element):
            raise InputError("expected (inputs, labels) or inputs, got nothing; pass at least inputs")
        return element[0], element[1] if len(element) > 1 else None
    return element, None


def usual_columns(names: Sequence[str]) -> Columns | None:
    """Inputs and labels among the columns of a dataset, by their usual names; None where none has one."""
    wanted = next((name for name in INPUT_NAMES if name in names), None)
    label = next((name for name in _MORE_LABELS if name in names), None)
    return None if wanted is None else (wanted, label)


def is_texts(values: Any) -> bool:
    """Whether this is a list of at least one str."""
    return isinstance(values, list) and bool(values) and all(isinstance(value, str) for value in values)


def is_one(value: Any, label: Any) -> bool:
    """Whether an element is an item, and not a batch of them: an image, a text, or with a single label."""
    return isinstance(value, Image.Image | str) or (label is not None and np.ndim(_plain(label)) == 0)


def batched(inputs: Any, transform: Transform | None = None) -> Any:
    """The inputs of several items as a batch: a tensor, a list of texts, or a dict of these.

    PIL images become float32 in [0, 1], channels first: one channel where they are grey, else three.
    """
    if isinstance(inputs, Mapping):
        return {name: batched(values, transform) for name, values in inputs.items()}
    if isinstance(inputs, Tensor | np.ndarray) and transform is None:
        return inputs
    if not isinstance(inputs, Iterable):
        raise InputError(
            f"expected batches or items of a dataset, got {type(inputs).__name__}; "
            "pass (inputs, labels) or inputs"
        )
    items = [item if transform is None else transform(item) for item in inputs]
    if not items or all(isinstance(item, str) for item in items):
        return items
    if all(isinstance(item, Mapping) for item in items):
        return {name: batched([item[name] for item in items]) for name in items[0]}
    return _stacked([image_pixels(item) if isinstance(item, Image.Image) else item for item in items])


def batched_labels(labels: Sequence[Any]) -> Any:
    """The labels of several items: a tensor where each is a number or all have one shape, else a list."""
    if any(label is None for label in labels):
        raise InputError("expected a label in every item or in none, got some without; leave those out")
    values = [np.array(label) if isinstance(label, Image.Image) else _plain(label) for label in labels]
    if any(isinstance(value, Mapping | list | tuple | str) for value in values):
        return list(labels)
    arrays = [torch.as_tensor(value) for value in values]
    return torch.stack(arrays) if len({array.shape for array in arrays}) == 1 else list(labels)


def _of_columns(element: Mapping[str, Any], columns: Columns | None) -> tuple[Any, Any]:
    if columns is not None:
        if missing := [name for name in columns if name is not None and name not in element]:
            raise InputError(f"expected columns {missing}, got {sorted(element)}; name the columns there are")
        wanted, label = columns
        return element[wanted], None if label is None else element[label]
    alone = next((name for name in (*TEXT_NAMES, *IMAGE_NAMES) if name in element), None)
    label = next((name for name in (_MORE_LABELS if alone else _LABELS) if name in element), None)
    if alone is not None:
        return element[alone], None if label is None else element[label]
    inputs = {
        name: value
        for name, value in element.items()
        if name not in (*_LABELS, *METADATA) and not name.startswith("__") and not _is_words(value)
    }
    if len(inputs) == 1 and (only := next(iter(inputs))) in ARRAYS_OF_RAY:
        inputs = inputs[only]
    return inputs, None if label is None else element[label]


def _is_words(value: Any) -> bool:
    return isinstance(value, str | bytes) or (
        isinstance(value, list) and bool(value) and isinstance(value[0], str | bytes)
    )


def _plain(label: Any) -> Any:
    """A label as a number, where a dataset gives it as bytes of digits, as webdataset does."""
    return int(label) if isinstance(label, bytes) and label.isdigit() else label


def _stacked(items: list[Any]) -> Tensor:
    try:
        tensors = [torch.as_tensor(item) for item in items]
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"expected items that are images, texts or numbers, got {type(items[0]).__name__} ({error}); "
            "pass transform=, a function from an item's input to a tensor"
        ) from error
    if len(shapes := {tuple(tensor.shape) for tensor in tensors}) > 1:
        raise InputError(
            f"expected inputs of one shape, got {' and '.join(map(str, sorted(shapes)[:2]))}; "
            "pass transform=, a function that gives each the same size and channels"
        )
    return torch.stack(tensors)
