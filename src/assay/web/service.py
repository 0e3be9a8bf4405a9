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
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from assay.errors import InputError
from assay.guard import AnyGuard
from assay.operation import Watch
from assay.version import VERSION
from assay.web.answers import Answers
from assay.web.body import TooLarge, body_of
from assay.web.limits import Limits as Limits
from assay.web.metrics import CONTENT_TYPE
from assay.web.request_line import RequestLine
from assay.web.tally import AnyTally, Tally
from assay.web.token import TokenRequired
from assay.web.visitors import OwnPagesOnly

OPEN_PATHS = ("/healthz", "/readyz", "/v2/health/live", "/v2/health/ready")
"""For the system that starts and stops services; they say nothing about the guard."""

BUSY = (503, "too many requests are waiting; retry later", {"Retry-After": "1"})

log = logging.getLogger("assay.service")


class Service:
    """The application of one watched guard; `service.app` runs under any ASGI server.

    `state` is the file that keeps the counts: read at the start, written every `every` seconds and at the
    end. Without a `token` it answers everybody who can reach it. `hosts` are names that clients call the
    service by, besides those of this machine. Where another process counts for several services, pass the
    guard alone and the `tally` that leads there.
    """

    def __init__(
        self,
        watch: Watch | AnyGuard,
        *,
        name: str = "guard",
        state: str | os.PathLike[str] | None = None,
        every: float = 10.0,
        limits: Limits | None = None,
        token: str | None = None,
        hosts: Collection[str] = (),
        tally: AnyTally | None = None,
    ) -> None:
        self.watch = watch
        self.guard = watch.guard if isinstance(watch, Watch) else watch
        self.name = name
        self.limits = limits or Limits()
        self.version = self.guard.fingerprint[:12]
        self.tally: AnyTally = tally or Tally(_expect_watch(watch), build_facts(self.guard), state, every)
        answers = Answers(self.guard, self.tally, self.limits, name, self.version)
        self.line = RequestLine(
            answers, self.limits.threads, self.limits.batch_seconds, most=self.limits.waiting
        )
        self.waiting = self.reading = 0
        self.body_bytes = 0
        """Bytes of bodies in memory."""
        self.started = False
        self.draining: Callable[[], bool] = lambda: False
        """Whether the service is about to end: it still answers, and says that it is not ready."""
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
        opened = self.tally.open()
        await asyncio.to_thread(opened.__enter__)
        self.started = True
        try:
            yield
        finally:
            self.started = False
            await self.line.stop()
            await asyncio.to_thread(opened.__exit__, None, None, None)

    async def _infer(self, request: Request) -> Response:
        start = time.perf_counter()
        try:
            content = await self._answer_in_slot(await self._read_body(request))
        except _Refusal as refusal:
            seconds = time.perf_counter() - start
            return self._refuse(refusal.status, refusal.sentence, refusal.headers, seconds)
        # Counted before it is sent: what a client has seen is in the counts.
        self.tally.add_request(200, time.perf_counter() - start)
        return Response(content, media_type="application/json")

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

    async def _answer_in_slot(self, body: bytes) -> bytes:
        """Answer a body, which keeps its slot until nothing of it is in memory."""
        if self.waiting >= self.limits.waiting:  # others came while the body arrived
            self.body_bytes -= len(body)
            raise _Refusal(*BUSY)
        self._count_waiting(1)
        computing = self.line.put(body)
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await asyncio.shield(computing)
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
        self.tally.show(self.waiting, self.reading)

    def _count_reading(self, change: int) -> None:
        self.reading += change
        self.tally.show(self.waiting, self.reading)

    async def _readiness(self, _: Request) -> Response:
        word = "starting" if not self.started else "draining" if self.draining() else "ready"
        return PlainTextResponse(f"{word}\n", 200 if word == "ready" else 503)

    async def _metrics_page(self, _: Request) -> Response:
        return Response(await asyncio.to_thread(self.tally.text), media_type=CONTENT_TYPE)

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

    def _refuse(
        self,
        status: int,
        sentence: str,
        headers: dict[str, str] | None = None,
        seconds: float | None = None,
    ) -> Response:
        """One sentence for the client, one line in the log, without control characters from the client."""
        plain = "".join(letter if letter.isprintable() else " " for letter in sentence)
        log.warning("%d %s", status, " ".join(plain.split()))
        self.tally.add_request(status, seconds)
        return JSONResponse({"error": sentence}, status_code=status, headers=headers)


def build_facts(guard: AnyGuard) -> dict[str, str]:
    """What is running, for the metrics."""
    return {
        "version": VERSION,
        "guard": guard.fingerprint,
        "network": guard.network_fingerprint,
        "monitor": guard.monitor_name,
    }


def _expect_watch(watch: Watch | AnyGuard) -> Watch:
    if not isinstance(watch, Watch):
        raise InputError(f"expected a Watch, got {type(watch).__name__}; pass Watch(guard), or a tally")
    return watch


class _Refusal(Exception):
    """A request that gets no prediction, and why."""

    def __init__(self, status: int, sentence: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(status, sentence)
        self.status, self.sentence, self.headers = status, sentence, headers


async def _alive(_: Request) -> Response:
    return PlainTextResponse("ok\n")
