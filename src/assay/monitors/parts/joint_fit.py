"""One pass over a stream of Traces for several monitors."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Full, Queue
from typing import Any, TypeVar

from assay.errors import InputError
from assay.monitors.monitor import Monitor
from assay.trace import Trace

Feed = Queue[Trace | BaseException | None]
SomeMonitors = TypeVar("SomeMonitors", bound=Sequence[Monitor])


def fit_together(monitors: SomeMonitors, traces: Trace | Iterable[Trace]) -> SomeMonitors:
    """Fit every monitor on the same stream, reading it once and holding a few Traces at a time.

    `traces` is one Trace or a stream of them, such as `network.stream(data)`; every monitor ends as
    `monitor.fit(traces)` leaves it. `fit` pulls its Traces, so every monitor pulls in a thread of its own and
    waits there for the slowest. If the stream or a monitor fails, the error is raised and none is fitted.
    """
    collect_together(monitors, traces)
    try:
        for monitor in monitors:
            monitor._conclude()
    except BaseException:
        for monitor in monitors:
            monitor._forget()
        raise
    return monitors


def collect_together(monitors: Sequence[Monitor], traces: Trace | Iterable[Trace]) -> None:
    """What every monitor gathers of the stream, without what fitting does after the last row."""
    if not monitors or not all(isinstance(monitor, Monitor) for monitor in monitors):
        raise InputError(
            f"expected a list of at least one monitor to fit, got {monitors!r}; pass for example [Energy()]"
        )
    if len({id(monitor) for monitor in monitors}) < len(monitors):
        raise InputError("expected distinct monitors, got the same object twice; build it twice")
    feeds: list[Feed] = [Queue(maxsize=1) for _ in monitors]
    with ThreadPoolExecutor(len(monitors)) as pool:
        jobs = [
            pool.submit(_collect, monitor, _until_the_end(feed))
            for monitor, feed in zip(monitors, feeds, strict=True)
        ]
        try:
            for trace in [traces] if isinstance(traces, Trace) else traces:
                _hand_out(trace, feeds, jobs)
                _raise_failure(jobs)
        except BaseException as error:  # also an interrupt: half a stream must not pass for a whole one
            _hand_out(error, feeds, jobs)
            raise
        _hand_out(None, feeds, jobs)
    try:
        _raise_failure(jobs)
    except BaseException:  # what was fitted beside a monitor that failed may have missed the end
        for monitor in monitors:
            monitor._forget()
        raise


def _collect(monitor: Monitor, traces: Iterable[Trace]) -> None:
    monitor._forget()
    try:
        monitor._collect(traces)
    except BaseException:  # half a fit must not pass for one
        monitor._forget()
        raise


def _hand_out(item: Trace | BaseException | None, feeds: list[Feed], jobs: list["Future[Any]"]) -> None:
    for feed, job in zip(feeds, jobs, strict=True):
        while not job.done():  # a monitor that failed takes nothing more
            try:
                feed.put(item, timeout=0.05)
                break
            except Full:
                continue


def _raise_failure(jobs: list["Future[Any]"]) -> None:
    for job in jobs:
        if job.done():
            job.result()


def _until_the_end(feed: Feed) -> Iterator[Trace]:
    while (item := feed.get()) is not None:
        if isinstance(item, BaseException):
            raise item
        yield item
