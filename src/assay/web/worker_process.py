"""A worker: a process of the service that computes answers, and sends what it counts to its supervisor."""

import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any

import torch

from assay.errors import AssayError, InputError
from assay.freed_memory import keep_freed_memory
from assay.guard import AnyGuard
from assay.operation import Watch
from assay.web.limits import Limits
from assay.web.listening import serve_until_stopped
from assay.web.service import Service
from assay.web.tally import AnyTally, TallyLine

LOG_FORMAT = "%(asctime)s %(levelname)s %(message)s"
FAILED = 2
"""Exit status of a worker that cannot start, and has told its supervisor why."""


@dataclass(frozen=True)
class WorkerPlan:
    """All that a worker needs to start, as a pickle."""

    load: Callable[[], AnyGuard]
    """A function of a module, or a partial of one."""
    fingerprint: str
    """Of the guard that the supervisor counts for."""
    layers: Collection[str]
    """Those that are counted."""
    name: str
    limits: Limits
    token: str | None
    hosts: Collection[str]
    torch_threads: int = 1

    @classmethod
    def of(
        cls,
        watch: Watch,
        load: Callable[[], AnyGuard],
        name: str,
        limits: Limits,
        token: str | None,
        hosts: Collection[str],
        workers: int,
    ) -> "WorkerPlan":
        """The plan of each of so many workers, which share the threads of this process."""
        share = max(1, torch.get_num_threads() // workers)
        fingerprint, layers = watch.guard.fingerprint, watch.counted_layers
        return cls(load, fingerprint, layers, name, limits, token, hosts, share)

    def guard(self) -> AnyGuard:
        guard = self.load()
        if guard.fingerprint != self.fingerprint:
            raise InputError(
                f"expected the guard that the service began with, {self.fingerprint}, got "
                f"{guard.fingerprint}; its file has changed, so start the service again"
            )
        return guard

    def service(self, guard: AnyGuard, tally: AnyTally) -> Service:
        return Service(
            guard, name=self.name, limits=self.limits, token=self.token, hosts=self.hosts, tally=tally
        )


def work(plan: WorkerPlan, listener: socket.socket, line: Any, gauges: Any, draining: Any) -> None:
    """Serve until SIGTERM, or until the supervisor is gone."""
    os.setpgrp()  # Ctrl-C is for the supervisor, which lets workers finish
    threading.Thread(target=_end_with_supervisor, name="supervisor", daemon=True).start()
    logging.basicConfig(level=logging.WARNING, format=LOG_FORMAT)
    keep_freed_memory()
    torch.set_num_threads(plan.torch_threads)
    tally = TallyLine(line, gauges, plan.layers)
    try:
        guard = plan.guard()
    except AssayError as error:
        tally.fail(str(error))
        sys.exit(FAILED)
    service = plan.service(guard, tally)
    service.draining = lambda: bool(draining.value)
    serve_until_stopped(service.app, listener, plan.limits.seconds, log_config=None)


def _end_with_supervisor() -> None:
    supervisor = multiprocessing.parent_process()
    assert supervisor is not None
    wait([supervisor.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
