"""A bounded sample of rows that does not depend on how they were split or in which order they came."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from assay.errors import InputError
from assay.monitors.parts.gathered import Gathered

Columns = Mapping[Any, Tensor]


class Reservoir(Gathered):
    """The `limit` rows with the smallest keys (`RowKeys`), in the order of their keys; None keeps every row.

    A row may have parts in several tensors, by name. Memory is at most that of twice `limit` rows and one
    batch; adding rows costs a comparison each once the sample is full.
    """

    def __init__(self, limit: int | None) -> None:
        self._limit = checked_limit(limit)
        self._keys: list[Tensor] = []
        self._parts: list[Columns] = []
        self._cut = torch.inf
        """No key from here on can stay."""
        self._sorted = True

    def add(self, keys: Tensor, rows: Tensor | Columns) -> None:
        columns: Columns = {"": rows} if isinstance(rows, Tensor) else rows
        if self._parts and columns.keys() != self._parts[0].keys():
            missing = sorted(map(str, columns.keys() ^ self._parts[0].keys()))
            raise InputError(
                "expected every Trace of a stream to have the same parts, got some with and some without "
                f"{missing}; observe all with the same options"
            )
        near = self.near(keys)
        if len(near) < len(keys):
            keys, columns = keys[near], {name: part[near] for name, part in columns.items()}
        if len(keys) or not self._parts:
            self._keys.append(keys)
            self._parts.append(columns)
            self._sorted = False
        if self._limit is not None and sum(map(len, self._keys)) > 2 * self._limit:
            self._sort()

    def near(self, keys: Tensor) -> Tensor:
        """The numbers of those among the next rows that may stay, `limit` at most; others need not be
        made."""
        near = torch.nonzero(keys < self._cut)[:, 0]
        if self._limit is None or len(near) <= self._limit:
            return near
        smallest = keys[near].argsort(stable=True)[: self._limit]
        return near[smallest.sort().values]

    def merge(self, other: "Reservoir") -> None:
        if other._keys:
            self.add(other.keys, other._sort())

    @property
    def keys(self) -> Tensor:
        """Of the rows kept, in order."""
        self.columns()
        return self._keys[0] if self._keys else torch.empty(0, dtype=torch.float64)

    def rows(self, name: Any = "") -> Tensor:
        """One part of the rows kept."""
        return self._sort()[name]

    def columns(self) -> Columns:
        """Every part of the rows kept."""
        return self._sort() if self._parts else {}

    def _sort(self) -> Columns:
        if self._sorted:
            return self._parts[0]
        keys = torch.cat(self._keys)
        order = keys.argsort(stable=True)[: self._limit]
        if len(self._parts) > 1 or len(order) < len(keys) or not bool((order.diff() == 1).all()):
            self._parts = [
                {name: torch.cat([part[name] for part in self._parts])[order] for name in self._parts[0]}
            ]
            self._keys = [keys[order]]
        if len(order) == self._limit:
            self._cut = float(self._keys[0][-1])
        self._sorted = True
        return self._parts[0]

    def state(self) -> dict[str, Any]:
        self.columns()
        return super().state()


def checked_limit(limit: int | None) -> int | None:
    """The limit itself; a clear error where it would keep no row."""
    if limit is not None and limit < 1:
        raise InputError(f"expected a limit of at least 1 row, or None for all rows, got {limit}")
    return limit
