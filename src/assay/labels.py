"""Labels in any common form, as class numbers."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.errors import InputError


def class_numbers(labels: Any) -> Tensor:
    """Labels as int64, one per input; whole floats and a column (N, 1), as read from tables, are accepted.

    >>> class_numbers([[2.0], [0.0]])
    tensor([2, 0])
    """
    values = labels if isinstance(labels, Tensor) else _as_tensor(labels)
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


def _as_tensor(labels: Any) -> Tensor:
    try:
        array = np.asarray(labels)
    except ValueError as error:  # rows of different lengths
        raise InputError(f"expected one label per input, got rows of several lengths ({error})") from error
    if array.dtype.kind not in "biuf":
        raise InputError(
            f"expected labels as class numbers, got an array of type {array.dtype}; number the classes from 0"
        )
    return torch.from_numpy(array.astype(array.dtype.newbyteorder("=")))  # torch needs the native byte order
