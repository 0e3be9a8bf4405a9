"""Sums and norms over the features of every row, block by block so that they stay in cache.

All in single precision, in which features come: the rounding of such a sum is a share of about 1e-7.
"""

import torch
from torch import Tensor

from assay.monitors.parts.row_blocks import row_blocks

_ROWS = 1024


def distance_from(mean: Tensor, rows: Tensor) -> Tensor:
    """||row - mean||, one per row, to divide by: at least 1e-8, NaN where a row is not finite."""
    parts = [
        torch.linalg.vector_norm(block.to(mean.dtype) - mean, dim=1) for block in row_blocks(rows, _ROWS)
    ]
    distances = torch.cat(parts).double()
    return torch.where(torch.isfinite(distances), distances.clamp(min=1e-8), torch.nan)


def absolute_sum(rows: Tensor) -> Tensor:
    """||row||_1, one per row."""
    return torch.cat([block.float().abs().sum(dim=1) for block in row_blocks(rows, _ROWS)]).double()


def ratio_of_sums(rows: Tensor, others: Tensor) -> Tensor:
    """sum of a row / sum of the other row; 0 / 0 is 0."""
    below = others.sum(dim=1).double()
    return rows.sum(dim=1).double() / torch.where(below != 0, below, 1)
