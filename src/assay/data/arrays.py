"""Numeric arrays of any common layout as the tensor that a network takes."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from assay.errors import InputError

Array = npt.NDArray[np.generic]

_CHANNELS = (1, 3, 4)
_WIDER = {"uint16": "int32", "uint32": "int64", "uint64": "int64"}
_WHITE = {np.dtype(np.bool_): 1.0, np.dtype(np.uint8): 255.0, np.dtype(np.uint16): 65535.0}


def as_inputs(array: Array, source: object, scale: float | None = None) -> Tensor:
    """A float32 tensor: a table (N, D) as it is; images (N, C, H, W), channels first, in [0, 1].

    Two axes are a table, three are grey images (N, H, W), four are images (N, C, H, W), or (N, H, W, C) if
    only the last axis has length 1, 3 or 4. Values are divided by `scale`. Without it, tables are unchanged,
    uint8 images are divided by 255, uint16 images by 65535, and float images must be in [0, 1]. The data are
    copied once at most; a float32 array in the right layout is not copied.
    """
    if array.dtype.kind not in "biuf":
        raise InputError(f"{source}: expected numbers, got an array of type {array.dtype}; store numbers")
    if array.ndim not in (2, 3, 4) or not array.size:
        raise InputError(
            f"{source}: expected a table (N, D) or images (N, H, W) or (N, C, H, W) that are not empty, "
            f"got shape {array.shape}; reshape the array"
        )
    if scale is not None and not (math.isfinite(scale) and scale > 0):
        raise InputError(
            f"expected a scale above 0, got {scale}; pass the value of a white pixel, such as 255"
        )
    divisor = _white(array, source) if scale is None else scale
    values = _divided(_channels_first(array), divisor)
    low, high = values.min(), values.max()
    if not (math.isfinite(low) and math.isfinite(high)):
        raise InputError(f"{source}: expected finite numbers, got NaN or infinity; clean the array")
    if array.ndim > 2 and scale is None and not (low >= 0 and high <= 1):
        raise InputError(
            f"{source}: expected images with values in [0, 1], got {low:g} to {high:g}; "
            "pass scale=255 to divide by 255, or scale=1 to keep the values"
        )
    return torch.from_numpy(values)


def as_symbols(array: Array, source: object) -> Tensor:
    """Whole numbers (N, ...), such as bytes and tokens, as they are; types that torch lacks become wider.

    >>> as_symbols(np.array([[7, 255]], dtype=np.uint16), "files.npz")
    tensor([[  7, 255]], dtype=torch.int32)
    """
    if array.dtype.kind not in "iu" or array.ndim < 2 or not array.size:
        raise InputError(
            f"{source}: expected rows of whole numbers, got {array.dtype} of shape {array.shape}; leave "
            "integers= out to read numbers as floats"
        )
    dtype: np.dtype[Any] = np.dtype(_WIDER.get(array.dtype.name, array.dtype.name))  # in native byte order
    return torch.from_numpy(np.require(array, dtype, ["C", "W"]))


def _channels_first(array: Array) -> Array:
    if array.ndim == 3:
        return array[:, None]
    if array.ndim == 4 and array.shape[1] not in _CHANNELS and array.shape[3] in _CHANNELS:
        return array.transpose(0, 3, 1, 2)
    return array


def _white(array: Array, source: object) -> float:
    if array.ndim == 2 or array.dtype.kind == "f":
        return 1.0
    if array.dtype not in _WHITE:
        raise InputError(
            f"{source}: expected images of type uint8, uint16 or float, got {array.dtype}; "
            "pass scale= with the value of a white pixel"
        )
    return _WHITE[array.dtype]


def _divided(array: Array, divisor: float) -> npt.NDArray[np.float32]:
    if divisor == 1.0:
        # torch needs memory that is writable, contiguous and in native byte order.
        return np.require(array, np.float32, ["C", "W"])
    values = np.empty(array.shape, np.float32)
    np.divide(array, np.float32(divisor), out=values, dtype=np.float32, casting="unsafe")
    return values
