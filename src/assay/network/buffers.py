"""Rows collected batch by batch, with only one copy in memory."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.outputs import LOGITS
from assay.trace import Inputs, Trace


class RowBuffer:
    """Grows in place, a few batches or 1/64 ahead, so that peak memory is little more than the rows
    themselves, even if their number is not known beforehand.

    `ndarray.resize` reallocates, which for large blocks moves page tables and not bytes (on Linux; elsewhere
    it may copy, 64 times the rows in the worst case). Concatenating a list at the end would need twice the
    memory.
    """

    def __init__(self) -> None:
        self._first: Tensor | None = None
        self._rows: np.ndarray[Any, Any] | None = None
        self._used = 0

    def add(self, batch: Tensor) -> None:
        batch = batch.detach().cpu()
        if self._rows is None and self._first is None:
            self._first = batch.clone()  # it may be a view of the caller's inputs
            return
        if self._first is not None:
            first, self._first = self._first, None
            self._rows = np.empty(first.shape, first.numpy().dtype)
            self._append(first)
        self._append(batch)

    def tensor(self) -> Tensor:
        """All rows; the buffer must not be used afterwards."""
        if self._first is not None:
            return self._first
        assert self._rows is not None
        self._resize(self._used)
        return torch.from_numpy(self._rows)

    def _append(self, batch: Tensor) -> None:
        assert self._rows is not None
        values = batch.numpy()
        end = self._used + len(values)
        if end > len(self._rows):
            self._resize(end + max(4 * len(values), end // 64))
        self._rows[self._used : end] = values
        self._used = end

    def _resize(self, length: int) -> None:
        assert self._rows is not None
        # No view of this array leaves the class before `tensor`, so the reference count does not matter.
        self._rows.resize((length, *self._rows.shape[1:]), refcheck=False)


def owned(rows: Tensor) -> Tensor:
    """In memory of its own: a module may return its inputs, or what it writes to next time."""
    return rows.to("cpu", copy=True)


def gathered_trace(gathered: Mapping[tuple[str, str], RowBuffer], kept: Inputs | None) -> Trace:
    """The Trace of rows collected by part and name; `kept` are inputs that came in one piece."""
    parts: dict[str, dict[str, Tensor]] = {"logits": {}, "features": {}, "labels": {}, "inputs": {}}
    for (part, name), buffer in gathered.items():
        parts[part][name] = buffer.tensor()
    inputs: Inputs | None = parts["inputs"] or kept
    return Trace(
        parts["logits"][""],
        parts["features"],
        parts["labels"].get(""),
        inputs[""] if isinstance(inputs, Mapping) and "" in inputs else inputs,
        outputs=LOGITS,
    )
