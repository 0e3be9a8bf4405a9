"""A fit and scores on an engine: each shard is read, and what it says is gathered, where a worker runs."""

from collections.abc import Iterable, Iterator, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.engine import checked_engine, mapped, worker_count
from assay.errors import InputError
from assay.monitors.monitor import Monitor
from assay.sharded_trace import Shard, ShardedTrace
from assay.trace import Trace

ROWS = 65_536
"""Rows of a job where there is one Trace."""

Part = Shard | Trace


LARGEST_GROUP = 8
"""Shards of a job of a fit at most: what a lost worker costs."""


@dataclass(frozen=True)
class _Collector:
    monitor: Monitor

    def __call__(self, group: Sequence[Part]) -> Monitor:
        monitor = deepcopy(self.monitor)
        monitor._collect(map(_trace, group))
        return monitor


@dataclass(frozen=True)
class _Scorer:
    monitor: Monitor

    def __call__(self, part: Part) -> Tensor:
        return self.monitor.score(_trace(part))


def collect_on(
    monitor: Monitor, traces: ShardedTrace | Trace | Iterable[Trace], engine: str, workers: int | None
) -> None:
    """Let the monitor gather what each part of the data has, joined in their order."""
    if monitor.merge_obstacle:
        raise InputError(
            f"expected a monitor whose fits merge for engine={engine!r}, got {type(monitor).__name__}: "
            f"{monitor.merge_obstacle}; fit it with engine='here'"
        )
    groups = _groups(traces, worker_count(checked_engine(engine, workers), workers))
    found = mapped(_Collector(monitor), groups, engine, workers=workers, description="fitting")
    first = next(found, None)
    if first is None:
        raise InputError(
            f"expected data to fit {type(monitor).__name__} on, got none; pass a Trace with rows"
        )
    for other in found:
        first._join(other)
    monitor._adopt(first)


def scores_on(monitor: Monitor, traces: ShardedTrace | Trace, engine: str, workers: int | None) -> Tensor:
    """The scores of all parts, in their order."""
    scorer = copy(monitor)
    scorer._gathered = None  # no worker needs it
    return torch.cat(
        list(mapped(_Scorer(scorer), _parts(traces), engine, workers=workers, description="scoring"))
    )


def _groups(traces: ShardedTrace | Trace | Iterable[Trace], workers: int | None) -> Iterator[Sequence[Part]]:
    """Shards that follow each other, several at first and one at the end: few states to merge, and no worker
    waits long for the last."""
    if not isinstance(traces, ShardedTrace) or workers is None:
        yield from ([part] for part in _parts(traces))
        return
    start, left = 0, len(traces.shards)
    while left:
        size = max(1, min(LARGEST_GROUP, left // (2 * workers)))
        yield traces.shards[start : start + size]
        start, left = start + size, left - size


def _parts(traces: ShardedTrace | Trace | Iterable[Trace]) -> Iterator[Part]:
    if isinstance(traces, ShardedTrace):
        yield from traces.shards
    elif isinstance(traces, Trace):
        for start in range(0, len(traces), ROWS):
            yield traces[torch.arange(start, min(start + ROWS, len(traces)))]  # a copy: a view would take all
    else:
        yield from traces


def _trace(part: Part) -> Trace:
    return part.trace() if isinstance(part, Shard) else part
