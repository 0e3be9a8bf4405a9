"""One pass over a stream of Traces for several monitors."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Full, Queue
from typing import Any

from assay.monitors.monitor import Monitor
from assay.trace import Trace

Feed = Queue[Trace | None]


def fit_together(monitors: Sequence[Monitor], traces: Iterator[Trace]) -> None:
    """Fit every monitor on the same stream, reading it once and holding a few Traces at a time.

    `fit` pulls its Traces, so every monitor pulls in a thread of its own and waits there for the slowest.
    """
    feeds: list[Feed] = [Queue(maxsize=1) for _ in monitors]
    with ThreadPoolExecutor(len(monitors)) as pool:
        jobs = [
            pool.submit(monitor.fit, _until_the_end(feed))
            for monitor, feed in zip(monitors, feeds, strict=True)
        ]
        try:
            for trace in traces:
                _hand_out(trace, feeds, jobs)
        finally:
            _hand_out(None, feeds, jobs)
    for job in jobs:
        job.result()


def _hand_out(trace: Trace | None, feeds: list[Feed], jobs: list["Future[Any]"]) -> None:
    for feed, job in zip(feeds, jobs, strict=True):
        while not job.done():  # a monitor that failed takes nothing more
            try:
                feed.put(trace, timeout=0.05)
                break
            except Full:
                continue


def _until_the_end(feed: Feed) -> Iterator[Trace]:
    while (trace := feed.get()) is not None:
        yield trace
