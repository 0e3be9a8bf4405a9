"""The largest values of every row."""

import numpy as np
import torch
from torch import Tensor

from assay.errors import InputError
from assay.network.graph import under_tracer


def checked_percentile(percentile: float) -> float:
    if not 0 <= percentile < 100:
        raise InputError(f"expected a percentile from 0 to below 100, got {percentile}")
    return percentile


def count_above(percentile: float, size: int) -> int:
    """How many of `size` values lie above a percentile, at least one."""
    return max(1, size - round(size * percentile / 100))


def top_values(rows: Tensor, count: int) -> Tensor:
    """(N, count): the largest values of each row, the smallest of them first, the others in any order."""
    if under_tracer():
        return rows.topk(count, dim=1).values.flip(1)
    # numpy selects several times faster than topk.
    place = rows.shape[1] - count
    return torch.from_numpy(np.partition(rows.numpy(), place, axis=1)[:, place:])
