"""Exact nearest neighbours in bounded memory: faiss where it is installed, blocked torch elsewhere."""

import importlib
import importlib.util
from typing import Any

import numpy as np
import torch
from torch import Tensor

_NUMBERS = 2**24
"""Of products held at a time: 64 MB in single precision."""

_GROUP = 10
"""Columns that share a first comparison in the torch search."""


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


def _faiss() -> Any:
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
    only those, and the columns left over, are sorted. Several times faster than topk over whole rows.
    """
    rows, columns = products.shape
    groups = columns // _GROUP
    if groups <= count:
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
