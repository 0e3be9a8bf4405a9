"""A bounded, seeded sample of a stream that does not depend on how the stream was cut."""

import numpy as np
import torch
from torch import Tensor

from assay.errors import InputError


class Reservoir:
    """Uniformly `limit` of all rows added, in the order they came; all of them where there are fewer.

    Every row draws one key; the rows with the smallest keys stay. Keys are drawn in row order, so one big
    batch and many small ones keep the same rows. Memory is at most `limit` rows plus a batch; None keeps
    every row. `keys` are those of the rows kept; without a limit only if `keyed`.
    """

    def __init__(self, limit: int | None, seed: int, keyed: bool = False) -> None:
        self._limit = checked_limit(limit)
        self._keyed = keyed or limit is not None
        self._generator = np.random.default_rng(seed)
        self.keys = torch.empty(0, dtype=torch.float64)
        self._parts: list[Tensor] = []

    def add(self, rows: Tensor) -> None:
        self._parts.append(rows)
        if not self._keyed:
            return
        keys = torch.cat([self.keys, torch.from_numpy(self._generator.random(len(rows)))])
        kept = keys.argsort()[: self._limit].sort().values
        self.keys = keys[kept]
        if len(kept) < len(keys):
            self._parts = [self.rows()[kept]]

    def rows(self) -> Tensor:
        return self._parts[0] if len(self._parts) == 1 else torch.cat(self._parts)


def checked_limit(limit: int | None) -> int | None:
    """The limit itself; a clear error where it would keep no row."""
    if limit is not None and limit < 1:
        raise InputError(f"expected a limit of at least 1 row, or None for all rows, got {limit}")
    return limit
