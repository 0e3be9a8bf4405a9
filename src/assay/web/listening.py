"""A port of this machine: opened before its address is printed, served until somebody stops it."""

import asyncio
import ipaddress
import math
import os
import signal
import socket
import time
from types import FrameType
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from assay.errors import InputError

MOST_CONNECTIONS = 1000
IDLE_SECONDS = 15.0
QUEUE = 2048
"""Connections that wait to be taken; the system may allow fewer."""


def is_this_machine(host: str) -> bool:
    """Whether only programs on this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listening_socket(host: str, port: int) -> socket.socket:
    """An open port: clients that connect early wait instead of failing, and what is sent goes out at once."""
    if not 0 <= port <= 65535:
        raise InputError(f"expected a port from 0 to 65535, got {port}; choose another --port")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=QUEUE)
    except OSError as error:
        # An unknown name has a negative number, which only the resolver knows.
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise InputError(
            f"expected a free address, got {host}:{port} ({reason}); choose another --port or --host"
        ) from error
    # Connections inherit it. Without it the body of an answer waits 40 ms for the client to acknowledge its
    # headers; asyncio sets it by itself only on sockets whose protocol was named.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def address_of(listener: socket.socket) -> str:
    """The part of an address before the path."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve_until_stopped(
    app: ASGIApp, listener: socket.socket, grace: float, drain: "Drain | None" = None, **options: Any
) -> None:
    """Serve until SIGTERM or SIGINT; exit with status 0 once all is answered or `grace` seconds are over."""
    config = uvicorn.Config(
        app,
        loop="asyncio",
        http=PromptConnection,
        ws="none",
        access_log=False,
        backlog=1,  # connections that a worker takes at a time; the others are for its neighbours
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=math.ceil(IDLE_SECONDS),
        timeout_graceful_shutdown=math.ceil(grace),
        **options,
    )
    for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn raises them again when it is done
        signal.signal(number, _exit_cleanly)
    DrainingServer(config, drain or Drain()).run(sockets=[LongQueue(fileno=listener.detach())])


class Drain:
    """The time between SIGTERM and the end, in which a service still answers, and says it is not ready.

    A balancer that asks for readiness sends its next requests elsewhere, before connections are refused. A
    second signal, or SIGINT, ends it at once.
    """

    def __init__(self, seconds: float = 0.0) -> None:
        if not 0 <= seconds < math.inf:
            raise InputError(f"expected a number of seconds to drain, 0 or more, got {seconds}")
        self.seconds = seconds
        self.end: float | None = None

    def begun(self) -> bool:
        return self.end is not None

    def signal(self, number: int) -> None:
        first = number == signal.SIGTERM and not self.begun()
        self.end = time.monotonic() + (self.seconds if first else 0.0)

    def over(self) -> bool:
        return self.end is not None and time.monotonic() >= self.end


class DrainingServer(uvicorn.Server):
    """A server that drains before it stops."""

    def __init__(self, config: uvicorn.Config, drain: Drain) -> None:
        super().__init__(config)
        self.drain = drain

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        again = self.should_exit
        self.drain.signal(sig)
        if again or self.drain.over():
            super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        self.should_exit = self.should_exit or self.drain.over()
        return await super().on_tick(counter)


class LongQueue(socket.socket):
    """A listening socket with a long queue; asyncio would make it as short as what it takes at a time."""

    def listen(self, backlog: int = 0, /) -> None:
        super().listen(QUEUE)


def _exit_cleanly(*_: object) -> None:
    raise SystemExit(0)


class PromptConnection(H11Protocol):
    """A connection that is closed after a while without a new request.

    uvicorn waits forever for the rest of a header, for the rest of a refused body, and for a client to read
    its answer; a thousand such connections would keep everybody else out.
    """

    idle_seconds = IDLE_SECONDS
    answered = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._check_later()

    def on_response_complete(self) -> None:
        self.answered += 1
        super().on_response_complete()

    def _check_later(self) -> None:
        self.loop.call_later(self.idle_seconds, self._close_if_idle, self.answered)

    def _close_if_idle(self, answered_before: int) -> None:
        if self not in self.connections:  # it is gone
            return
        busy = self.cycle is not None and not self.cycle.response_complete
        if not busy and self.answered == answered_before:
            self.transport.abort()
        else:
            self._check_later()
