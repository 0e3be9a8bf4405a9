"""The body of a request, part by part, up to a limit."""

from collections.abc import AsyncIterator

from starlette.requests import Request


class TooLarge(Exception):
    """A body beyond the limit."""


async def body_of(request: Request, most: int) -> AsyncIterator[bytes]:
    """The body that a client sends, up to `most` bytes; a longer declared length is refused at once."""
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and (len(declared) > 18 or int(declared) > most):
        raise TooLarge
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise TooLarge
        yield part
