"""Exact nearest neighbours in bounded memory: faiss where it is installed, blocked torch elsewhere."""

import importlib
import importlib.util
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_NUMBERS = 2**24
"""Of products held at a time: 64 MB in single precision."""

_PATTERNS = 2**16
"""Pairs of patterns compared at a time by numpy: 0.7 MB, which stays in cache."""

_GROUP = 10
"""Columns that share a first comparison in the torch search."""

_FEW = 8
"""Rows below which one call of topk is faster."""


def nearest_rows(queries: Tensor, bank: Tensor, count: int) -> Tensor:
    """(N, count): indices of the rows of `bank` nearest to each query, nearest first."""
    if faiss := _faiss():
        return torch.from_numpy(faiss.knn(_array(queries), _array(bank), count)[1])
    # The nearest have the largest q'b - |b|^2 / 2.
    return _blocked(queries, bank, count, bank.square().sum(dim=1) / -2)[1]


def largest_products(queries: Tensor, bank: Tensor, count: int) -> Tensor:
    """(N, count): the largest inner products of each query with the rows of `bank`, largest first."""
    if faiss := _faiss():
        found = faiss.knn(_array(queries), _array(bank), count, metric=faiss.METRIC_INNER_PRODUCT)
        return torch.from_numpy(found[0])
    return _blocked(queries, bank, count, torch.zeros(len(bank)))[0]


def fewest_differences(patterns: NDArray[np.uint64], stored: NDArray[np.uint64]) -> NDArray[np.int32]:
    """(N,): in how many bits each pattern differs from the stored one that is most like it."""
    if faiss := _faiss():
        differences, _ = faiss.knn_hamming(patterns.view(np.uint8), stored.view(np.uint8), 1)
        return np.asarray(differences[:, 0])
    fewest = np.empty(len(patterns), np.int32)
    block = max(1, _PATTERNS // len(stored))
    columns = np.ascontiguousarray(stored.T)
    shape = (block, len(stored))
    different, ones = np.empty(shape, np.uint64), np.empty(shape, np.uint8)
    differences = np.empty(shape, np.min_scalar_type(64 * len(columns)))
    for start in range(0, len(patterns), block):
        part = patterns[start : start + block]
        rows = slice(len(part))
        differences[rows] = 0
        for word, column in enumerate(columns):
            np.bitwise_xor(part[:, word, None], column, out=different[rows])
            np.bitwise_count(different[rows], out=ones[rows])
            differences[rows] += ones[rows]
        fewest[start : start + block] = differences[rows].min(axis=1)
    return fewest


@cache
def _faiss() -> Any:
    """The package, or None; looked for once, since that takes longer than a search for one row."""
    return importlib.import_module("faiss") if importlib.util.find_spec("faiss") else None


def _array(rows: Tensor) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(rows.numpy(), dtype=np.float32)


def _blocked(queries: Tensor, bank: Tensor, count: int, offsets: Tensor) -> tuple[Tensor, Tensor]:
    size = max(1, min(len(queries), _NUMBERS // len(bank)))
    room = torch.empty(size, len(bank))  # used again for every block: fresh memory costs a tenth of the time
    blocks = [
        _largest(torch.addmm(offsets, rows, bank.T, out=room[: len(rows)]), count)
        for rows in torch.split(queries, size)
    ]
    return torch.cat([values for values, _ in blocks]), torch.cat([places for _, places in blocks])


def _largest(products: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row and their places.

    Columns are dealt into groups; the largest of all lie in the `count` groups with the largest members, so
    only those, and the columns left over, are sorted. Several times faster than topk over whole rows, once
    there are a few rows.
    """
    rows, columns = products.shape
    groups = columns // _GROUP
    if groups <= count or rows < _FEW:
        return products.topk(count, dim=1)
    dealt = products[:, : groups * _GROUP].view(rows, _GROUP, groups)
    best = dealt.amax(dim=1).topk(count, dim=1, sorted=False).indices
    starts = torch.arange(_GROUP) * groups
    places = torch.cat(
        [
            (best[:, None, :] + starts[:, None]).flatten(1),
            torch.arange(groups * _GROUP, columns).expand(rows, -1),
        ],
        dim=1,
    )
    values, order = products.gather(1, places).topk(count, dim=1)
    return values, places.gather(1, order)
