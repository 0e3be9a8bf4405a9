"""Hugging Face datasets, read without importing any package of Hugging Face."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from assay.data.arrays import as_inputs
from assay.data.dataset_items import INPUT_NAMES
from assay.data.delimited import LABEL_NAMES
from assay.data.images import Size, stacked
from assay.data.labelled import Labelled, from_names, numbered
from assay.errors import InputError, MissingLabelsError


def read_huggingface(
    dataset: Any,
    inputs: str | None = None,
    label: str | None = None,
    *,
    size: Size | None = None,
    channels: int | None = None,
    scale: float | None = None,
    classes: Sequence[str] | None = None,
) -> Labelled[Tensor] | Labelled[list[str]]:
    """(inputs, labels) from one split of a Hugging Face dataset, or anything with `column_names`.

    A column of texts becomes a list of str; a column of images float32 in [0, 1], channels first (see
    `read_images` for `size` and `channels`); a column of numbers float32 (`scale` as in `read_npz`). By
    default the inputs are the column called text, sentence, content, review, image, img, inputs, x or
    features, and the labels the one called label, labels, class, target or y. Class names are kept; labels
    that are texts are numbered in sorted order, or in the order of `classes`.
    """
    _check_split(dataset)
    label_name = _column(dataset, label, LABEL_NAMES, "label")
    labels, names = _labels(dataset, label_name, classes)
    found: Any = huggingface_inputs(dataset, inputs, size=size, channels=channels, scale=scale)
    by_name = isinstance(dataset[label_name][0], str)
    return Labelled(found, labels, names, in_sorted_order=by_name and classes is None)


def huggingface_inputs(
    dataset: Any,
    inputs: str | None = None,
    *,
    size: Size | None = None,
    channels: int | None = None,
    scale: float | None = None,
) -> Tensor | list[str]:
    """The inputs of `read_huggingface` alone."""
    _check_split(dataset)
    name = _column(dataset, inputs, INPUT_NAMES, "inputs")
    column, source = dataset[name], f"column {name!r}"
    if isinstance(column[0], str):
        return list(column)
    if isinstance(column[0], Image.Image):
        return stacked(column, source, size, channels)
    return as_inputs(_numbers(column, source), source, scale)


def _check_split(dataset: Any) -> None:
    if isinstance(dataset, Mapping) or not hasattr(dataset, "column_names"):
        kind = "several splits" if isinstance(dataset, Mapping) else type(dataset).__name__
        raise InputError(
            f'expected one split of a dataset, got {kind}; pass a split such as dataset["train"]'
        )
    if not len(dataset):
        raise InputError("expected a dataset with rows, got an empty one; pass another split")


def _column(dataset: Any, asked: str | None, usual: Sequence[str], role: str) -> str:
    there: list[str] = list(dataset.column_names)
    for name in usual if asked is None else (asked,):
        if name in there:
            return name
    wanted = f"a column {asked!r}" if asked else f"a column of {role} under a usual name"
    kind = MissingLabelsError if role == "label" and asked is None else InputError
    raise kind(f"expected {wanted}, got {there}; pass {role}= with one of them")


def _labels(dataset: Any, name: str, classes: Sequence[str] | None) -> tuple[Tensor, tuple[str, ...] | None]:
    column, source = dataset[name], f"column {name!r}"
    if isinstance(column[0], str):
        return from_names(list(column), classes, source)
    names = getattr((getattr(dataset, "features", None) or {}).get(name), "names", None)
    return numbered(list(column), len(dataset), source), None if names is None else tuple(names)


def _numbers(column: Sequence[Any], source: str) -> Any:
    try:
        return np.asarray(column[:])
    except ValueError as error:
        raise InputError(
            f"{source}: expected rows of one shape, got rows of several; pad or resize them"
        ) from error
