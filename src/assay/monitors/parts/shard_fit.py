"""A fit and scores on an engine: each shard is read, and what it says is gathered, where a worker runs."""

from collections.abc import Iterable, Iterator
from copy import copy, deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.engine import mapped
from assay.errors import InputError
from assay.monitors.monitor import Monitor
from assay.sharded_trace import Shard, ShardedTrace
from assay.trace import Trace

ROWS = 65_536
"""Rows of a job where there is one Trace."""

Part = Shard | Trace


@dataclass(frozen=True)
class _Collector:
    monitor: Monitor

    def __call__(self, part: Part) -> Monitor:
        monitor = deepcopy(self.monitor)
        monitor._collect(_trace(part))
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
    found = mapped(_Collector(monitor), _parts(traces), engine, workers=workers, description="fitting")
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
