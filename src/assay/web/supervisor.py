"""Supervisor: several worker processes behind one port, one tally, and a new worker for one that ended.

Workers take connections from one listening socket, which the supervisor holds open: a connection that no
worker has taken yet outlives all of them. Each worker has a line to the supervisor and sends what it counts
before it answers. What is in the line stays there when the worker ends, and is counted.
"""

import logging
import multiprocessing
import os
import pickle
import signal
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from assay.errors import InputError
from assay.operation import Watch
from assay.web.listening import Drain, address_of, serve_until_stopped
from assay.web.service import build_facts
from assay.web.tally import Tally
from assay.web.worker_process import WorkerPlan, work

FULL_LINE = 2**21
"""Bytes, more than the system holds for a line: who reads so many has read all that was sent before."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds before a worker is started again: twice as long after each that ended before it was ready."""
PATIENCE = 5.0
"""Seconds beyond those for requests in progress, after which a worker that does not end is killed."""
LOOK = 0.1
"""Seconds between two looks at signals and at workers that are due."""

log = logging.getLogger("assay.service")


@dataclass
class Worker:
    """A worker process, or the place of one that ended."""

    gauges: Any
    """Requests waiting and being read, written by the process."""
    process: BaseProcess | None = None
    line: "Connection[Any, Any] | None" = None
    ready: bool = False
    reason: str = ""
    """Why the last process could not start."""
    failures: int = 0
    """Processes in a row that ended before they were ready."""
    due: float = 0.0
    """When the next one is started."""

    def bury(self) -> int | None:
        """Forget a process that has ended, and return its exit status."""
        assert self.process is not None
        assert self.line is not None
        self.line.close()
        self.process.join()
        status = self.process.exitcode
        self.failures = 0 if self.ready else self.failures + 1
        self.due = time.monotonic() + min(FIRST_PAUSE * 2**self.failures, LONGEST_PAUSE)
        self.process = self.line = None
        self.ready = False
        self.gauges[:] = 0, 0
        return status


class Supervisor:
    """Runs `count` workers on a listening socket, and counts for them."""

    def __init__(
        self, tally: Tally, plan: WorkerPlan, listener: socket.socket, count: int, drain: Drain
    ) -> None:
        self.tally, self.plan, self.listener, self.drain = tally, plan, listener, drain
        # A fork of this process would share the locks of its threads; that of a process which has only
        # imported what a worker needs is clean, and starts in milliseconds.
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload([work.__module__])
        self.draining = self.context.RawValue("b", 0)
        self.workers = [Worker(self.context.RawArray("q", 2)) for _ in range(count)]
        self.was_ready = False

    def run_until_signalled(self) -> None:
        """Run until SIGTERM or SIGINT."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: self.drain.signal(number))
        self.run()

    def run(self) -> None:
        """Until `drain` is over: then workers answer what they have taken, and the counts are kept."""
        self._count_ready()
        try:
            with self.tally.open():
                while not self.drain.over():
                    self.draining.value = self.drain.begun()
                    self._start_those_due()
                    self._listen()
                self._end_all()
        finally:
            self._kill_all()

    def _start_those_due(self) -> None:
        for worker in self.workers:
            if worker.process is None and time.monotonic() >= worker.due:
                worker.line, theirs = self.context.Pipe()
                given = (self.plan, self.listener, theirs, worker.gauges, self.draining)
                worker.process = self.context.Process(target=work, args=given, daemon=True)
                worker.process.start()
                theirs.close()  # so that the line ends with the worker

    def _end_all(self) -> None:
        for worker in self.workers:
            if worker.process is not None:
                worker.process.terminate()
        end = time.monotonic() + self.plan.limits.seconds + PATIENCE
        while any(worker.process for worker in self.workers):
            if time.monotonic() > end:
                self._kill_all()
            self._listen()

    def _kill_all(self) -> None:
        for worker in self.workers:
            if worker.process is not None:
                worker.process.kill()

    def _listen(self) -> None:
        """Take what workers have sent, and what those that ended had sent before."""
        heard = wait([worker.line for worker in self.workers if worker.line is not None], LOOK)
        for worker in self.workers:
            if worker.line in heard:
                self._take(worker)

    def _take(self, worker: Worker) -> int:
        """Take one message, or see the end of a worker; the bytes read."""
        assert worker.line is not None
        try:
            message = worker.line.recv_bytes()
        except (EOFError, OSError):  # perhaps within a message, for which it had not answered then
            self._see_end(worker)
            return 0
        name, *arguments = pickle.loads(message)
        if name == "text":
            self._send_text(worker)
        elif name == "ready":
            worker.ready = self.was_ready = True
            self._count_ready()
        elif name == "failed":
            (worker.reason,) = arguments
        else:
            getattr(self.tally, name)(*arguments)
        return len(message)

    def _send_text(self, worker: Worker) -> None:
        """The metrics, with all that other workers had sent when they were asked for."""
        for other in self.workers:
            read = 0
            while other is not worker and other.line is not None and read < FULL_LINE and other.line.poll():
                read += self._take(other)
        waiting, reading = (sum(gauge) for gauge in zip(*(one.gauges for one in self.workers), strict=True))
        self.tally.show(waiting, reading)
        if worker.line is not None:
            with suppress(OSError):  # it has ended meanwhile, as the next look at its line shows
                worker.line.send_bytes(self.tally.text())

    def _see_end(self, worker: Worker) -> None:
        status = worker.bury()
        self._count_ready()
        if self.drain.begun():
            return
        reason = worker.reason or f"it ended with status {status}"
        if not self.was_ready:
            raise InputError(f"expected workers that start, got one that did not: {reason}")
        log.error("a worker is replaced: %s", reason)
        self.tally.metrics.restarts.inc()

    def _count_ready(self) -> None:
        self.tally.metrics.workers.set(sum(worker.ready for worker in self.workers))


def serve_guard(
    watch: Watch,
    plan: WorkerPlan,
    listener: socket.socket,
    *,
    workers: int,
    state: str | os.PathLike[str] | None,
    every: float,
    drain: Drain,
) -> None:
    """Serve until signalled: one worker in this process, or several under a supervisor."""
    address = f"assay: {address_of(listener)}/v2/models/{plan.name}/infer and /metrics"
    tally = Tally(watch, build_facts(watch.guard), state, every)
    print(address, flush=True)
    if workers > 1:
        Supervisor(tally, plan, listener, workers, drain).run_until_signalled()
        return
    service = plan.service(watch.guard, tally)
    service.draining = drain.begun
    serve_until_stopped(service.app, listener, plan.limits.seconds, drain, log_config=None)
