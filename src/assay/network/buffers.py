"""Rows collected batch by batch, with only one copy in memory."""

from typing import Any

import numpy as np
import torch
from torch import Tensor


class RowBuffer:
    """Grows in place, a few batches or 1/64 ahead, so that peak memory is little more than the rows
    themselves, even if their number is not known beforehand.

    `ndarray.resize` reallocates, which for large blocks moves page tables and not bytes (on Linux; elsewhere
    it may copy, 64 times the rows in the worst case). Concatenating a list at the end would need twice the
    memory.
    """

    def __init__(self) -> None:
        self._first: Tensor | None = None
        self._dtype: torch.dtype | None = None
        self._rows: np.ndarray[Any, Any] | None = None
        self._used = 0

    def add(self, batch: Tensor) -> None:
        batch = batch.detach().cpu()
        if self._rows is None and self._first is None:
            self._first = batch.clone()  # it may be a view of the caller's inputs
            return
        if self._first is not None:
            first, self._first = self._first, None
            self._dtype = first.dtype
            self._rows = np.empty(first.shape, _array(first).dtype)
            self._append(first)
        self._append(batch)

    def tensor(self) -> Tensor:
        """All rows; the buffer must not be used afterwards."""
        if self._first is not None:
            return self._first
        assert self._rows is not None
        self._resize(self._used)
        assert self._dtype is not None
        return torch.from_numpy(self._rows).view(self._dtype)

    def _append(self, batch: Tensor) -> None:
        assert self._rows is not None
        assert self._dtype is not None
        values = _array(batch.to(self._dtype))
        end = self._used + len(values)
        if end > len(self._rows):
            self._resize(end + max(4 * len(values), end // 64))
        self._rows[self._used : end] = values
        self._used = end

    def _resize(self, length: int) -> None:
        assert self._rows is not None
        # No view of this array leaves the class before `tensor`, so the reference count does not matter.
        self._rows.resize((length, *self._rows.shape[1:]), refcheck=False)


def _array(batch: Tensor) -> np.ndarray[Any, Any]:
    """The same bytes for NumPy, which does not know bfloat16 and takes them for integers."""
    return (batch.view(torch.int16) if batch.dtype == torch.bfloat16 else batch).numpy()
