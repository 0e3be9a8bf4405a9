"""The guard as a service: predictions with score and alarm over HTTP, in the v2 inference protocol.

Two rules keep memory bounded: a request takes a place only while fewer than `limits.waiting` others are not
answered, and the bodies of all of them together, also those still on their way, are never longer than that
many of the longest. Others are told to come again (503). A body on its way takes no place: slow clients keep
nobody out.
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
from assay.web.protocol import answered, parsed
from assay.web.token import TokenRequired
from assay.web.visitors import OwnPagesOnly

OPEN_PATHS = ("/healthz", "/readyz", "/v2/health/live", "/v2/health/ready")
"""For whoever starts and stops services; they tell nothing of the guard."""

BUSY = (503, "too many requests are waiting; come again", {"Retry-After": "1"})

log = logging.getLogger("assay.service")


@dataclass(frozen=True)
class Limits:
    """How much a client may ask for."""

    body: int = 16 * 2**20
    """Bytes of a request, and of the numbers in its answer."""
    rows: int = 256
    """Rows of a request."""
    waiting: int = 32
    """Requests taken and not answered."""
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

    `state` is the file that counts are kept in, every `every` seconds and at the end, and taken up from at
    the start. Without a `token` everybody is answered who can reach it. `hosts` are names that clients know
    the service by, besides those of this machine.
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
            raise InputError(f"expected a positive number of seconds between two writings, got {every}")
        self.watch = watch
        self.name = name
        self.state = state
        self.every = every
        self.limits = limits or Limits()
        self.version = watch.guard.fingerprint[:12]
        self.metrics = Metrics(watch, self._facts())
        self.workers = ThreadPoolExecutor(self.limits.workers, thread_name_prefix="guard")
        self.taken = self.reading = 0
        self.held = 0
        """Bytes of bodies in memory."""
        self.ready = False
        if state is not None:
            watch.resume(state)
        self.app = self._application(token, hosts)

    def _application(self, token: str | None, hosts: Collection[str]) -> Any:
        model = f"/v2/models/{self.name}"
        routes = [
            Route("/healthz", _live),
            Route("/readyz", self._readiness),
            Route("/metrics", self._told),
            Route("/v2", self._server),
            Route("/v2/health/live", _live),
            Route("/v2/health/ready", self._readiness),
            Route(model, self._model),
            Route(f"{model}/ready", self._readiness),
            Route(f"{model}/infer", self._infer, methods=["POST"]),
        ]
        app: ASGIApp = Starlette(
            routes=routes,
            lifespan=self._running,
            exception_handlers={HTTPException: self._unknown, Exception: self._broken},
        )
        if token is not None:
            app = TokenRequired(app, token, self._unasked, OPEN_PATHS)
        return OwnPagesOnly(app, self._refused, hosts)

    @asynccontextmanager
    async def _running(self, _: Starlette) -> AsyncIterator[None]:
        keeping = asyncio.create_task(self._keep_going())
        self.ready = True
        try:
            yield
        finally:
            self.ready = False
            keeping.cancel()
            with suppress(asyncio.CancelledError):
                await keeping
            await asyncio.to_thread(self.workers.shutdown)
            await asyncio.to_thread(self._keep)

    async def _keep_going(self) -> None:
        while True:
            await asyncio.sleep(self.every)
            # A writing that has begun is finished, also when the service ends meanwhile.
            await asyncio.shield(asyncio.to_thread(self._keep))

    def _keep(self) -> None:
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
            return await self._placed(await self._body(request))
        except _Refusal as refusal:
            return self._refused(refusal.status, refusal.sentence, refusal.headers)
        finally:
            self.metrics.request.observe(time.perf_counter() - start)

    async def _body(self, request: Request) -> bytes:
        """The whole body, which counts as held until `_left`."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":  # any other a page of another site could send without being asked
            raise _Refusal(415, f"expected Content-Type: application/json, got {kind[:100]!r}")
        if self.taken >= self.limits.waiting:
            raise _Refusal(*BUSY)
        try:
            with self._reading() as parts:
                async with asyncio.timeout(self.limits.body_seconds):
                    async for part in body_of(request, self.limits.body):
                        self._hold(len(part))
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
            raise _Refusal(400, "the client went away before it had sent its request") from error

    @contextmanager
    def _reading(self) -> Iterator[list[bytes]]:
        """The parts of a body on its way; if it does not come whole, they are let go."""
        parts: list[bytes] = []
        self._count_reading(1)
        try:
            yield parts
        except BaseException:
            self.held -= sum(map(len, parts))
            raise
        finally:
            self._count_reading(-1)

    async def _placed(self, body: bytes) -> Response:
        """Answer a body that has a place until nothing of it is left in memory."""
        if self.taken >= self.limits.waiting:  # taken while the body came
            self.held -= len(body)
            raise _Refusal(*BUSY)
        self._count_taken(1)
        computing = asyncio.get_running_loop().run_in_executor(self.workers, self._computed, body)
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
                self._left(len(body), computing)
            else:  # it cannot be stopped, and keeps its place until it is done
                computing.add_done_callback(partial(self._left, len(body)))
        self.metrics.requests.labels("200").inc()
        return Response(content, media_type="application/json")

    def _hold(self, size: int) -> None:
        if self.held + size > self.limits.waiting * self.limits.body:
            raise _Refusal(*BUSY)
        self.held += size

    def _left(self, size: int, computing: "asyncio.Future[bytes]") -> None:
        self.held -= size
        self._count_taken(-1)
        if not computing.cancelled():
            computing.exception()  # perhaps nobody waits for it any more

    def _count_taken(self, change: int) -> None:
        self.taken += change
        self.metrics.waiting.set(self.taken)

    def _count_reading(self, change: int) -> None:
        self.reading += change
        self.metrics.reading.set(self.reading)

    def _computed(self, body: bytes) -> bytes:
        request, inputs = parsed(body, self.limits.rows)
        answer = self.watch.answer(inputs)
        self.metrics.add(answer)
        return answered(request, answer, self.name, self.version, self.limits.body)

    async def _readiness(self, _: Request) -> Response:
        return PlainTextResponse("ready\n" if self.ready else "starting\n", 200 if self.ready else 503)

    async def _told(self, _: Request) -> Response:
        return Response(await asyncio.to_thread(self.metrics.text), media_type=CONTENT_TYPE)

    async def _server(self, _: Request) -> Response:
        return JSONResponse({"name": "assay", "version": VERSION, "extensions": []})

    async def _model(self, _: Request) -> Response:
        outputs = [
            {"name": "prediction", "datatype": "INT64", "shape": [-1]},
            {"name": "score", "datatype": "FP64", "shape": [-1]},
            {"name": "alarm", "datatype": "BOOL", "shape": [-1]},
            {"name": "logits", "datatype": "FP32", "shape": [-1, -1]},
        ]
        facts = {"name": self.name, "versions": [self.version], "platform": "assay_guard"}
        return JSONResponse(facts | {"inputs": [], "outputs": outputs})

    async def _unknown(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return self._refused(error.status_code, f"{error.detail}: {request.method} {request.url.path[:200]}")

    async def _broken(self, request: Request, error: Exception) -> Response:
        return self._refused(500, f"{type(error).__name__} in {request.url.path[:200]}")

    def _unasked(self) -> Response:
        return self._refused(
            401, "this service asks for a token: send Authorization: Bearer with the one it was started with"
        )

    def _refused(self, status: int, sentence: str, headers: dict[str, str] | None = None) -> Response:
        """One sentence for the client, one line in the log, in which nothing that a client sent can act."""
        plain = "".join(letter if letter.isprintable() else " " for letter in sentence)
        log.warning("%d %s", status, " ".join(plain.split()))
        self.metrics.requests.labels(str(status)).inc()
        return JSONResponse({"error": sentence}, status_code=status, headers=headers)

    def _facts(self) -> dict[str, str]:
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


async def _live(_: Request) -> Response:
    return PlainTextResponse("ok\n")
