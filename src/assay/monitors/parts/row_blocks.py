"""A stream of rows as blocks whose length does not depend on how the stream was cut."""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from assay.network.graph import under_tracer

ROWS = 1024
"""Rows per block: enough for a fast matrix product, few enough to stay in cache in double precision."""


def row_blocks(rows: Tensor, size: int) -> tuple[Tensor, ...]:
    """The rows in views of at most `size`; all in one where a tracer writes down what is done with them."""
    return (rows,) if under_tracer() or len(rows) <= size else torch.split(rows, size)


def in_blocks(parts: Iterable[tuple[Tensor, ...]], rows: int = ROWS) -> Iterator[tuple[Tensor, ...]]:
    """The same rows in blocks of `rows` and a last shorter one.

    Sums over blocks are then the same to the last bit for one Trace and for any split of it. Blocks that
    lie within one part are views.

    >>> parts = [(torch.arange(3),), (torch.arange(3, 5),)]
    >>> [block.tolist() for (block,) in in_blocks(parts, rows=2)]
    [[0, 1], [2, 3], [4]]
    """
    held: list[tuple[Tensor, ...]] = []
    wanted = rows
    for part in parts:
        start, length = 0, len(part[0])
        while length - start >= wanted:
            held.append(_cut(part, start, start + wanted))
            start += wanted
            yield _joined(held)
            held, wanted = [], rows
        if start < length:
            held.append(_cut(part, start, length))
            wanted -= length - start
    if held:
        yield _joined(held)


def _cut(part: tuple[Tensor, ...], start: int, end: int) -> tuple[Tensor, ...]:
    return tuple(tensor[start:end] for tensor in part)


def _joined(parts: list[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    return parts[0] if len(parts) == 1 else tuple(torch.cat(column) for column in zip(*parts, strict=True))
