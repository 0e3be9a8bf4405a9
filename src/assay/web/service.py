"""The guard as a service: predictions with score and alarm over HTTP, in the v2 inference protocol.

One rule keeps memory bounded: a request is taken only while fewer than `limits.waiting` others are not
answered, and is told to come again (503) otherwise, before its body is read.
"""

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from assay.errors import AssayError, InputError, StorageError
from assay.guard import Guard
from assay.network.inputs import form_of
from assay.operation import Answer, Watch
from assay.version import VERSION
from assay.web.metrics import CONTENT_TYPE, Metrics
from assay.web.protocol import answered, parsed
from assay.web.token import TokenRequired

OPEN_PATHS = ("/healthz", "/readyz", "/v2/health/live", "/v2/health/ready")
"""For whoever starts and stops services; they tell nothing of the guard."""

log = logging.getLogger("assay.service")


@dataclass(frozen=True)
class Limits:
    """How much a client may ask for."""

    body: int = 16 * 2**20
    """Bytes of a request."""
    rows: int = 256
    """Rows of a request."""
    waiting: int = 32
    """Requests taken and not answered."""
    seconds: float = 30.0
    """From taking a request to its answer."""
    workers: int = 1
    """Requests computed at the same time."""

    def __post_init__(self) -> None:
        if min(self.body, self.rows, self.waiting, self.workers) < 1 or not self.seconds > 0:
            raise InputError(f"expected limits of at least 1 and positive seconds, got {self}")


class Service:
    """The application of one watched guard; `service.app` runs under any ASGI server.

    `state` is the file that counts are kept in, every `every` seconds and at the end, and taken up from at
    the start.
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
        self.taken = 0
        self.ready = False
        if state is not None:
            watch.resume(state)
        self.app = self._application(token)

    def _application(self, token: str | None) -> Any:
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
        app = Starlette(
            routes=routes,
            lifespan=self._running,
            exception_handlers={HTTPException: self._unknown, Exception: self._broken},
        )
        return app if token is None else TokenRequired(app, token, OPEN_PATHS)

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
        if self.taken >= self.limits.waiting:
            return self._refused(503, "too many requests are waiting; come again", {"Retry-After": "1"})
        self.taken += 1
        self.metrics.waiting.set(self.taken)
        try:
            return await self._taken(request)
        finally:
            self.metrics.request.observe(time.perf_counter() - start)

    async def _taken(self, request: Request) -> Response:
        """Answer a request that counts among the waiting until nothing of it is left in memory."""
        computing: asyncio.Future[bytes] | None = None
        try:
            async with asyncio.timeout(self.limits.seconds):
                body = await self._body(request)
                loop = asyncio.get_running_loop()
                computing = loop.run_in_executor(self.workers, self._computed, body)
                content = await asyncio.shield(computing)
        except TimeoutError:
            return self._refused(504, f"no answer within {self.limits.seconds:g} seconds; send less at once")
        except _TooLarge:
            most = self.limits.body
            return self._refused(413, f"expected a body of at most {most} bytes; send smaller batches")
        except ClientDisconnect:
            return self._refused(400, "the client went away before it had sent its request")
        except InputError as error:
            return self._refused(400, str(error))
        finally:
            if computing is None or computing.done():
                self._left()
            else:  # it cannot be stopped, and keeps its place among the waiting until it is done
                computing.add_done_callback(self._left)
        self.metrics.requests.labels("200").inc()
        return Response(content, media_type="application/json")

    def _left(self, computing: "asyncio.Future[bytes] | None" = None) -> None:
        self.taken -= 1
        self.metrics.waiting.set(self.taken)
        if computing is not None and not computing.cancelled():
            computing.exception()  # nobody waits for it any more

    async def _body(self, request: Request) -> bytes:
        declared = request.headers.get("content-length", "0")
        if declared.isdigit() and int(declared) > self.limits.body:
            raise _TooLarge
        parts, size = [], 0
        async for part in request.stream():
            size += len(part)
            if size > self.limits.body:
                raise _TooLarge
            parts.append(part)
        return b"".join(parts)

    def _computed(self, body: bytes) -> bytes:
        request, inputs = parsed(body, self.limits.rows)
        answer = self._answer(inputs)
        self.metrics.add(answer)
        return answered(request, answer, self.name, self.version)

    def _answer(self, inputs: Any) -> Answer:
        """What the guard says; inputs that the network cannot take are the client's mistake."""
        guard = self.watch.guard
        if not isinstance(guard, Guard):
            return self.watch.answer(inputs)
        inputs = guard.network.encode(inputs)
        try:
            return self.watch.answer(inputs)
        except (RuntimeError, TypeError, IndexError, ValueError) as error:
            known, given = guard.network.form, form_of(inputs)
            if known == given or isinstance(error, AssayError):
                raise  # such inputs it could take before, so the fault is ours
            like = f" such as {_shown(known)}" if known else ""
            raise InputError(
                f"expected inputs that the network can take{like}, got {_shown(given)} "
                f"({str(error).splitlines()[0]:.200})"
            ) from error

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
        return self._refused(error.status_code, f"{error.detail}: {request.method} {request.url.path}")

    async def _broken(self, request: Request, error: Exception) -> Response:
        return self._refused(500, f"{type(error).__name__} in {request.url.path}")

    def _refused(self, status: int, sentence: str, headers: dict[str, str] | None = None) -> Response:
        """One sentence for the client, one line in the log."""
        log.warning("%d %s", status, " ".join(sentence.split()))
        self.metrics.requests.labels(str(status)).inc()
        return JSONResponse({"error": sentence}, status_code=status, headers=headers)

    def _facts(self) -> dict[str, str]:
        guard = self.watch.guard
        held = guard.monitor if isinstance(guard, Guard) else guard.metadata["monitor"]
        network = guard.network.fingerprint if isinstance(guard, Guard) else guard.metadata["network"]
        return {
            "version": VERSION,
            "guard": guard.fingerprint,
            "network": network,
            "monitor": str(held).partition("(")[0],
        }


class _TooLarge(Exception):
    """A body beyond the limit."""


async def _live(_: Request) -> Response:
    return PlainTextResponse("ok\n")


def _shown(form: Any) -> str:
    return ", ".join(
        f"{name}: {str(kind).removeprefix('torch.')} ({', '.join(['rows', *map(str, shape)])})".lstrip(": ")
        for name, (shape, kind) in form.items()
    )
