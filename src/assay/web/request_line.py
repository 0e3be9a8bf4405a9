"""Requests in line for the threads that compute, alone or several at a time."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

Outcome = bytes | Exception
"""Of a body: its answer, or why there is none."""


@dataclass(frozen=True)
class Waiting:
    """A body in line, and who waits for its answer."""

    body: bytes
    since: float
    answer: "asyncio.Future[bytes]"

    def resolve(self, outcome: Outcome) -> None:
        if self.answer.done():  # the loop is ending
            return
        if isinstance(outcome, Exception):
            self.answer.set_exception(outcome)
        else:
            self.answer.set_result(outcome)


class RequestLine:
    """Bodies go to `threads` threads in the order in which they came.

    With `wait` seconds, a thread that is free takes all that have come `wait` seconds after the first of
    them, up to `most`, and computes them together: no request waits longer than that for others. With None
    each is computed alone.
    """

    def __init__(
        self, compute: Callable[[Sequence[bytes]], list[Outcome]], threads: int, wait: float | None, most: int
    ) -> None:
        self.compute = compute
        self.wait, self.most = wait, most
        self.threads = ThreadPoolExecutor(threads, thread_name_prefix="guard")
        self.count = threads
        self._line: asyncio.Queue[Waiting] = asyncio.Queue()
        self._takers: list[asyncio.Task[None]] = []

    async def stop(self) -> None:
        """Wait for what the threads are computing."""
        for taker in self._takers:
            taker.cancel()
        await asyncio.gather(*self._takers, return_exceptions=True)
        await asyncio.to_thread(self.threads.shutdown)

    def put(self, body: bytes) -> "asyncio.Future[bytes]":
        """The answer to come."""
        if not self._takers:
            self._takers = [asyncio.create_task(self._take()) for _ in range(self.count)]
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        self._line.put_nowait(Waiting(body, loop.time(), answer))
        return answer

    async def _take(self) -> None:
        while True:
            batch = await self._next_batch()
            bodies = [waiting.body for waiting in batch]
            outcomes: Sequence[Outcome]
            try:
                loop = asyncio.get_running_loop()
                outcomes = await loop.run_in_executor(self.threads, self.compute, bodies)
            except Exception as error:  # an error of ours is the answer's, and the thread goes on
                outcomes = [error] * len(batch)
            for waiting, outcome in zip(batch, outcomes, strict=True):
                waiting.resolve(outcome)

    async def _next_batch(self) -> list[Waiting]:
        batch = [await self._line.get()]
        if self.wait is None:
            return batch
        with suppress(TimeoutError):
            async with asyncio.timeout_at(batch[0].since + self.wait):
                while len(batch) < self.most:
                    batch.append(await self._line.get())
        return batch
