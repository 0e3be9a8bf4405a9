"""Labels, in whichever form they come in."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.errors import InputError


def class_numbers(labels: Any) -> Tensor:
    """Labels as int64, one per input; whole floats and a column (N, 1), as tables give them, are the same.

    >>> class_numbers([[2.0], [0.0]])
    tensor([2, 0])
    """
    values = labels if isinstance(labels, Tensor) else _tensor(labels)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1 or values.is_complex():
        raise InputError(
            f"expected labels as one class number per input, got {values.dtype} {tuple(values.shape)}; "
            "pass class numbers, not one-hot rows or probabilities"
        )
    if values.is_floating_point() and not (whole := values.isfinite() & (values == values.trunc())).all():
        raise InputError(
            f"expected labels as whole class numbers, got {values[~whole][0].item():g}; "
            "pass class numbers, not probabilities or measurements"
        )
    return values.long()


def check_labels(labels: Tensor, classes: int) -> None:
    """Every label names an output of the network; a clear error where one does not (99 of 10, or -100)."""
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise InputError(
            f"expected labels from 0 to {classes - 1}, one per output of the network, got "
            f"{int(labels.min())} to {int(labels.max())}; leave out rows of unknown classes, or number the "
            "classes as the network does"
        )


def _tensor(labels: Any) -> Tensor:
    try:
        array = np.asarray(labels)
    except ValueError as error:  # rows of different lengths
        raise InputError(f"expected one label per input, got rows of several lengths ({error})") from error
    if array.dtype.kind not in "biuf":
        raise InputError(
            f"expected labels as class numbers, got an array of type {array.dtype}; number the classes from 0"
        )
    return torch.from_numpy(array.astype(array.dtype.newbyteorder("=")))  # torch wants its own byte order
