"""The guard as a service: predictions with score and alarm over HTTP, in the v2 inference protocol.

Two rules keep memory bounded. A request gets a slot only while fewer than `limits.waiting` others are
unanswered; and all bodies together, including those still arriving, never take more memory than that many of
the longest allowed. Other clients are told to retry later (503). A body that is still arriving takes no slot,
so slow clients do not block others.
"""

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from assay.errors import InputError, StorageError
from assay.operation import Watch
from assay.version import VERSION
from assay.web.body import TooLarge, body_of
from assay.web.metrics import CONTENT_TYPE, Metrics
from assay.web.protocol import parse_request, response_body
from assay.web.token import TokenRequired
from assay.web.visitors import OwnPagesOnly

OPEN_PATHS = ("/healthz", "/readyz", "/v2/health/live", "/v2/health/ready")
"""For the system that starts and stops services; they say nothing about the guard."""

BUSY = (503, "too many requests are waiting; retry later", {"Retry-After": "1"})

log = logging.getLogger("assay.service")


@dataclass(frozen=True)
class Limits:
    """Limits on what a client may ask for."""

    body: int = 16 * 2**20
    """Most bytes per request, and per answer."""
    rows: int = 256
    """Most rows per request."""
    waiting: int = 32
    """Most requests accepted and not yet answered."""
    seconds: float = 30.0
    """From the end of a body to its answer."""
    body_seconds: float = 20.0
    """From the header of a request to the end of its body."""
    workers: int = 1
    """Requests computed at the same time."""

    def __post_init__(self) -> None:
        whole, seconds = (self.body, self.rows, self.waiting, self.workers), (self.seconds, self.body_seconds)
        if min(whole) < 1 or not min(seconds) > 0:
            raise InputError(f"expected limits of at least 1 and positive seconds, got {self}")


class Service:
    """The application of one watched guard; `service.app` runs under any ASGI server.

    `state` is the file that keeps the counts: read at the start, written every `every` seconds and at the
    end. Without a `token` it answers everybody who can reach it. `hosts` are names that clients call the
    service by, besides those of this machine.
    """

    def __init__(
        self,
        watch: Watch,
        *,
        name: str = "guard",
        state: str | os.PathLike[str] | None = None,
        every: float = 10.0,
        limits: Limits | None = None,
        token: str | None = None,
        hosts: Collection[str] = (),
    ) -> None:
        if not every > 0:
            raise InputError(f"expected a positive number of seconds between two writes, got {every}")
        self.watch = watch
        self.name = name
        self.state = state
        self.every = every
        self.limits = limits or Limits()
        self.version = watch.guard.fingerprint[:12]
        self.metrics = Metrics(watch, self._build_facts())
        self.workers = ThreadPoolExecutor(self.limits.workers, thread_name_prefix="guard")
        self.waiting = self.reading = 0
        self.body_bytes = 0
        """Bytes of bodies in memory."""
        self.ready = False
        if state is not None:
            watch.resume(state)
        self.app = self._application(token, hosts)

    def _application(self, token: str | None, hosts: Collection[str]) -> Any:
        model = f"/v2/models/{self.name}"
        routes = [
            Route("/healthz", _alive),
            Route("/readyz", self._readiness),
            Route("/metrics", self._metrics_page),
            Route("/v2", self._server_facts),
            Route("/v2/health/live", _alive),
            Route("/v2/health/ready", self._readiness),
            Route(model, self._model_facts),
            Route(f"{model}/ready", self._readiness),
            Route(f"{model}/infer", self._infer, methods=["POST"]),
        ]
        app: ASGIApp = Starlette(
            routes=routes,
            lifespan=self._lifespan,
            exception_handlers={HTTPException: self._handle_http_error, Exception: self._handle_crash},
        )
        if token is not None:
            app = TokenRequired(app, token, self._refuse_without_token, OPEN_PATHS)
        return OwnPagesOnly(app, self._refuse, hosts)

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        keeping = asyncio.create_task(self._keep_regularly())
        self.ready = True
        try:
            yield
        finally:
            self.ready = False
            keeping.cancel()
            with suppress(asyncio.CancelledError):
                await keeping
            await asyncio.to_thread(self.workers.shutdown)
            await asyncio.to_thread(self._keep_counts)

    async def _keep_regularly(self) -> None:
        while True:
            await asyncio.sleep(self.every)
            # A write that has begun is finished, even if the service ends meanwhile.
            await asyncio.shield(asyncio.to_thread(self._keep_counts))

    def _keep_counts(self) -> None:
        if self.state is None:
            return
        try:
            self.watch.keep(self.state)
            self.metrics.kept.set(time.time())
        except StorageError as error:  # a full disk must not stop predictions
            log.error("%s", error)

    async def _infer(self, request: Request) -> Response:
        start = time.perf_counter()
        try:
            return await self._answer_in_slot(await self._read_body(request))
        except _Refusal as refusal:
            return self._refuse(refusal.status, refusal.sentence, refusal.headers)
        finally:
            self.metrics.request.observe(time.perf_counter() - start)

    async def _read_body(self, request: Request) -> bytes:
        """The whole body; its memory is reserved until `_release_slot`."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":  # a page of another site could send any other without asking
            raise _Refusal(415, f"expected Content-Type: application/json, got {kind[:100]!r}")
        if self.waiting >= self.limits.waiting:
            raise _Refusal(*BUSY)
        try:
            with self._body_parts() as parts:
                async with asyncio.timeout(self.limits.body_seconds):
                    async for part in body_of(request, self.limits.body):
                        self._reserve_memory(len(part))
                        parts.append(part)
                return b"".join(parts)
        except TimeoutError as error:
            sentence = (
                f"expected the whole body within {self.limits.body_seconds:g} seconds; send less at once"
            )
            raise _Refusal(408, sentence, {"Connection": "close"}) from error
        except TooLarge as error:
            sentence = f"expected a body of at most {self.limits.body} bytes; send smaller batches"
            raise _Refusal(413, sentence) from error
        except ClientDisconnect as error:
            raise _Refusal(400, "the client left before it had sent its whole request") from error

    @contextmanager
    def _body_parts(self) -> Iterator[list[bytes]]:
        """The parts of a body that is arriving; if it does not arrive whole, their memory is released."""
        parts: list[bytes] = []
        self._count_reading(1)
        try:
            yield parts
        except BaseException:
            self.body_bytes -= sum(map(len, parts))
            raise
        finally:
            self._count_reading(-1)

    async def _answer_in_slot(self, body: bytes) -> Response:
        """Answer a body, which keeps its slot until nothing of it is in memory."""
        if self.waiting >= self.limits.waiting:  # others came while the body arrived
            self.body_bytes -= len(body)
            raise _Refusal(*BUSY)
        self._count_waiting(1)
        computing = asyncio.get_running_loop().run_in_executor(self.workers, self._compute, body)
        try:
            async with asyncio.timeout(self.limits.seconds):
                content = await asyncio.shield(computing)
        except TimeoutError:
            seconds = self.limits.seconds
            raise _Refusal(504, f"no answer within {seconds:g} seconds; send less at once") from None
        except InputError as error:
            raise _Refusal(400, str(error)) from error
        finally:
            if computing.done():
                self._release_slot(len(body), computing)
            else:  # it cannot be stopped, and keeps its slot until it is done
                computing.add_done_callback(partial(self._release_slot, len(body)))
        self.metrics.requests.labels("200").inc()
        return Response(content, media_type="application/json")

    def _reserve_memory(self, size: int) -> None:
        if self.body_bytes + size > self.limits.waiting * self.limits.body:
            raise _Refusal(*BUSY)
        self.body_bytes += size

    def _release_slot(self, size: int, computing: "asyncio.Future[bytes]") -> None:
        self.body_bytes -= size
        self._count_waiting(-1)
        if not computing.cancelled():
            computing.exception()  # read it, since perhaps nobody waits for it any more

    def _count_waiting(self, change: int) -> None:
        self.waiting += change
        self.metrics.waiting.set(self.waiting)

    def _count_reading(self, change: int) -> None:
        self.reading += change
        self.metrics.reading.set(self.reading)

    def _compute(self, body: bytes) -> bytes:
        request, inputs = parse_request(body, self.limits.rows)
        answer = self.watch.answer(inputs)
        self.metrics.add(answer)
        return response_body(request, answer, self.name, self.version, self.limits.body)

    async def _readiness(self, _: Request) -> Response:
        return PlainTextResponse("ready\n" if self.ready else "starting\n", 200 if self.ready else 503)

    async def _metrics_page(self, _: Request) -> Response:
        return Response(await asyncio.to_thread(self.metrics.text), media_type=CONTENT_TYPE)

    async def _server_facts(self, _: Request) -> Response:
        return JSONResponse({"name": "assay", "version": VERSION, "extensions": []})

    async def _model_facts(self, _: Request) -> Response:
        outputs = [
            {"name": "prediction", "datatype": "INT64", "shape": [-1]},
            {"name": "score", "datatype": "FP64", "shape": [-1]},
            {"name": "alarm", "datatype": "BOOL", "shape": [-1]},
            {"name": "reasons", "datatype": "BYTES", "shape": [-1]},
            {"name": "logits", "datatype": "FP32", "shape": [-1, -1]},
        ]
        facts = {"name": self.name, "versions": [self.version], "platform": "assay_guard"}
        return JSONResponse(facts | {"inputs": [], "outputs": outputs})

    async def _handle_http_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return self._refuse(error.status_code, f"{error.detail}: {request.method} {request.url.path[:200]}")

    async def _handle_crash(self, request: Request, error: Exception) -> Response:
        return self._refuse(500, f"{type(error).__name__} in {request.url.path[:200]}")

    def _refuse_without_token(self) -> Response:
        return self._refuse(
            401, "this service needs a token: send Authorization: Bearer with the one it was started with"
        )

    def _refuse(self, status: int, sentence: str, headers: dict[str, str] | None = None) -> Response:
        """One sentence for the client, one line in the log, without control characters from the client."""
        plain = "".join(letter if letter.isprintable() else " " for letter in sentence)
        log.warning("%d %s", status, " ".join(plain.split()))
        self.metrics.requests.labels(str(status)).inc()
        return JSONResponse({"error": sentence}, status_code=status, headers=headers)

    def _build_facts(self) -> dict[str, str]:
        guard = self.watch.guard
        return {
            "version": VERSION,
            "guard": guard.fingerprint,
            "network": guard.network_fingerprint,
            "monitor": guard.monitor_name,
        }


class _Refusal(Exception):
    """A request that gets no prediction, and why."""

    def __init__(self, status: int, sentence: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(status, sentence)
        self.status, self.sentence, self.headers = status, sentence, headers


async def _alive(_: Request) -> Response:
    return PlainTextResponse("ok\n")
