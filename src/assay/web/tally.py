"""Tally: all that a service counts, in one place, however many workers it has.

The watches of a stream are sequential tests, and windows are cut from one stream: the states of several
workers cannot be added up afterwards without losing what they promise. So workers compute and one tally
counts, in the order in which answers are made.
"""

import logging
import os
import pickle
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from assay.errors import InputError, StorageError
from assay.guard import Answer
from assay.operation import Watch
from assay.outputs import LOGITS
from assay.trace import Trace
from assay.web.metrics import Metrics

log = logging.getLogger("assay.service")


@dataclass(frozen=True)
class Seen:
    """What is counted of an answer: arrays and numbers, which travel to another process."""

    logits: np.ndarray
    features: dict[str, np.ndarray]
    alarm: np.ndarray
    reasons: dict[str, int]
    """How many alarms have each member as the first reason."""
    model_seconds: float
    monitor_seconds: float

    @classmethod
    def of(cls, answer: Answer, layers: Collection[str]) -> "Seen":
        """`layers` are those whose features are counted."""
        verdict, trace = answer.verdict, answer.trace
        reasons = filter(None, verdict.reasons) if verdict.alarm.any() else ()
        return cls(
            trace.logits.numpy(),
            {layer: trace.layer(layer).numpy() for layer in layers},
            verdict.alarm.numpy(),
            dict(Counter(reason.partition(", ")[0] for reason in reasons)),
            answer.model_seconds,
            answer.monitor_seconds,
        )

    def trace(self) -> Trace:
        features = {layer: torch.from_numpy(rows) for layer, rows in self.features.items()}
        return Trace(torch.from_numpy(self.logits), features, outputs=LOGITS)


class AnyTally(Protocol):
    """Where a service counts: here (`Tally`), in its supervisor (`TallyLine`) or in a Ray actor.

    What was added is safe from the end of this process when the call returns, unless the tally is here.
    """

    layers: Collection[str]
    """Whose features are counted."""

    def add(self, seen: Seen) -> None:
        """Count an answer."""

    def add_request(self, status: int, seconds: float | None = None) -> None:
        """Count a request; seconds, if it was one for predictions."""

    def show(self, waiting: int, reading: int) -> None:
        """Requests of this process that are accepted and not yet answered, and that are still arriving."""

    def text(self) -> bytes:
        """All metrics, with everything in them that any worker has answered."""

    def open(self) -> AbstractContextManager[None]:
        """For the time in which requests are answered."""


class Tally:
    """Counts in this process: the watch and the metrics.

    `state` is the file that keeps the counts: read at the start, written every `every` seconds and at the
    end.
    """

    def __init__(
        self,
        watch: Watch,
        facts: dict[str, str],
        state: str | os.PathLike[str] | None = None,
        every: float = 10.0,
    ) -> None:
        if not 0 < every < threading.TIMEOUT_MAX:
            raise InputError(f"expected a positive number of seconds between two writes, got {every}")
        self.watch = watch
        self.layers: Collection[str] = watch.counted_layers
        self.state = state
        self.every = every
        self.metrics = Metrics(watch, facts)
        if state is not None:
            watch.resume(state)

    def add(self, seen: Seen) -> None:
        alarm = torch.from_numpy(seen.alarm)
        self.watch.count(seen.trace(), alarm)
        self.metrics.add(seen)

    def add_request(self, status: int, seconds: float | None = None) -> None:
        self.metrics.requests.labels(str(status)).inc()
        if seconds is not None:
            self.metrics.request.observe(seconds)

    def show(self, waiting: int, reading: int) -> None:
        self.metrics.waiting.set(waiting)
        self.metrics.reading.set(reading)

    def text(self) -> bytes:
        return self.metrics.text()

    @contextmanager
    def open(self) -> Iterator[None]:
        if self.state is None:
            yield
            return
        ended = threading.Event()
        keeping = threading.Thread(target=self._keep_until, args=(ended,), name="keeping", daemon=True)
        keeping.start()
        try:
            yield
        finally:
            ended.set()
            keeping.join()  # a write that has begun is finished
            self.keep()

    def _keep_until(self, ended: threading.Event) -> None:
        while not ended.wait(self.every):
            self.keep()

    def keep(self) -> None:
        """Write the counts to their file."""
        assert self.state is not None
        try:
            self.watch.keep(self.state)
            self.metrics.kept.set(time.time())
        except StorageError as error:  # a full disk must not stop predictions
            log.error("%s", error)


class TallyLine:
    """A worker's line to the tally of its supervisor.

    A message is in the supervisor's half of the line, where the end of this process cannot undo it, when
    `add` or `add_request` returns; one that was cut off is dropped, and its request was not answered.
    """

    def __init__(self, line: Any, gauges: Any, layers: Collection[str]) -> None:
        self.layers = layers
        self._line, self._gauges = line, gauges
        self._sending, self._asking = threading.Lock(), threading.Lock()

    def add(self, seen: Seen) -> None:
        self._send("add", seen)

    def add_request(self, status: int, seconds: float | None = None) -> None:
        self._send("add_request", status, seconds)

    def show(self, waiting: int, reading: int) -> None:
        self._gauges[:] = waiting, reading

    def text(self) -> bytes:
        with self._asking:
            self._send("text")
            found: bytes = self._line.recv_bytes()
            return found

    def fail(self, reason: str) -> None:
        """Say why there will be no worker at this end."""
        self._send("failed", reason)

    @contextmanager
    def open(self) -> Iterator[None]:
        self._send("ready")
        yield

    def _send(self, *message: Any) -> None:
        # Not `send`, whose pickles hand torch's tensors over as open files.
        content = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        with self._sending:
            self._line.send_bytes(content)
